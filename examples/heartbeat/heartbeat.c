/* A loop that reports each step to the launcher, and how long it may be silent while it saves.
 *
 *     cc -o heartbeat examples/heartbeat/heartbeat.c && muster run --no-python ./heartbeat
 *
 * Under another launcher nothing is reported. sd_notify(3) of libsystemd does the same with
 * NOTIFY_SOCKET, which is muster's, too, but in a service of systemd that has one itself. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static void notify(const char *text) {
    static int agent = -1;
    const char *name = getenv("MUSTER_NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (name == NULL || name[0] == '\0' || strlen(name) >= sizeof to.sun_path)
        return;
    if (agent < 0)
        agent = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(to.sun_path, name, strlen(name));
    if (name[0] == '@')
        to.sun_path[0] = '\0'; /* abstract: no file */
    (void)sendto(agent, text, strlen(text), 0, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
}

int main(void) {
    int step = 0;
    while (step < 10) {
        char text[64];
        (void)snprintf(text, sizeof text, "MUSTER_STEP=%d", ++step);
        notify(text);
    }
    notify("WATCHDOG_USEC=600000000"); /* ten minutes for the checkpoint */
    notify("MUSTER_SAFE_POINT=1\nWATCHDOG_USEC=0");
    printf("%d steps\n", step);
    return 0;
}
