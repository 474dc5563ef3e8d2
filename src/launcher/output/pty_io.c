#include "launcher/output/pty_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "io/file.h"

void pty_resize(int ours, int like, unsigned narrower) {
    struct winsize size;
    if (ioctl(like, TIOCGWINSZ, &size) < 0)
        return;
    if (size.ws_col > narrower)
        size.ws_col = (unsigned short)(size.ws_col - narrower);
    (void)ioctl(ours, TIOCSWINSZ, &size);
}

int pty_open(int like, int *ret_ours, int *ret_workers) {
    struct termios settings;
    /* the worker's end by ours, because its name can be of another mount namespace */
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), workers = -1;
    if (ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0)
        workers = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool ok =
        workers >= 0 && (tcgetattr(like, &settings) == 0 || tcgetattr(workers, &settings) == 0);
    if (ok) {
        cfmakeraw(&settings);
        ok = tcsetattr(workers, TCSANOW, &settings) == 0;
    }
    if (!ok) {
        int r = errno != 0 ? -errno : -EIO;
        file_close(&workers);
        file_close(&ours);
        return r;
    }
    *ret_ours = ours;
    *ret_workers = workers;
    return 0;
}
