# Spack 1.0 or later. Copy this to packages/muster/ of a repository of yours, then, in a checkout of muster:
#     spack dev-build muster@main
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Muster(MesonPackage):
    """Launcher for distributed training that takes torchrun's options."""

    license("Apache-2.0")

    version("main")

    variant("torchrun", default=False, description="Also install a link to muster named torchrun")

    depends_on("c", type="build")
    depends_on("meson@0.56:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libevent@2.1.12: +openssl")
    depends_on("openssl@1.1.1:")
    depends_on("cjson@1.7.13:")
    depends_on("hwloc@2.4:")

    def meson_args(self):
        torchrun = "true" if self.spec.satisfies("+torchrun") else "false"
        return [f"-Dtorchrun={torchrun}", "-Dtests=disabled", "-Dexamples=disabled", "-Dnccl-examples=disabled"]
