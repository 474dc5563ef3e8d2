/* The termination message of a container: one line that Kubernetes keeps in the pod's status, where
 * "kubectl describe pod" shows it after the container is gone.
 *
 * Source: kubernetes.io, "Determine the Reason for Pod Failure": /dev/termination-log unless the
 * container says otherwise (terminationMessagePath), at most 4096 bytes. */
#pragma once

#include "base/util.h"

#define TERMINATION_BYTES_MAX 4096

/* Writes the text as one line, if this is a pod (KUBERNETES_SERVICE_HOST in envp), and the file is
 * there, can be written, and is still empty: a message of the program's own, or an earlier one,
 * stays. Control characters become blanks; what is too long is cut. Otherwise does nothing. */
void termination_write(char *const *envp, const char *text);
/* The line with its newline, at most TERMINATION_BYTES_MAX bytes; malloc'ed. For tests. */
_must_use_ char *termination_line(const char *text);
