/* Reads what contain_why.h needs to know about the kernel and the container. */
#pragma once

#include "base/err.h"
#include "launcher/contain/contain_why.h"

/* Sets err to what is missing and returns code, a negative errno. If err is NULL, reads nothing. */
int contain_failed(enum contain_step step, int code, struct err *err);
