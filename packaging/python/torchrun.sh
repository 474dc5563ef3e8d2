#!/bin/sh
# torchrun, by the muster that is installed beside it
self=$(readlink -f -- "$0")
exec "${self%/*}/muster" torchrun "$@"
