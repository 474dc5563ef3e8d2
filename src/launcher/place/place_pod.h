/* Where in Kubernetes this process is: which pod of an Indexed Job, and under which name the other
 * pods find the one with index 0. Pure: the environment and the text of /etc/hosts come in, the
 * place and where each value came from go out. (launcher/place/place.h is the same for Slurm.)
 *
 *     struct pod_place place;
 *     pod_place_read(environ, &facts, &place);
 *     if (place.kind == POD_PLACE_INDEXED && place.first_host[0] != '\0') … place.index
 *
 * Nothing tells a pod how many pods its Job has: only the user knows (--nnodes).
 *
 * Sources: kubernetes.io, "Job with Pod-to-Pod Communication": a pod of an Indexed Job has the host
 * name JOB-INDEX, and JOB_COMPLETION_INDEX. "DNS for Services and Pods": with a `subdomain`, the
 * name of a headless Service, its full name is JOB-INDEX.SUBDOMAIN.NAMESPACE.svc.CLUSTER, and
 * another pod finds it by that name. The kubelet writes one line for each address of a pod into
 * /etc/hosts: "ADDRESS<tab>FULL NAME<tab>HOST NAME", and without a subdomain only the host name.
 * JobSet (jobset.sigs.k8s.io) makes Indexed Jobs named JOBSET-REPLICATEDJOB-NUMBER, so the rule is
 * the same; it sets no variables of its own, so a pod can't see that there are several Jobs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text/strbuf.h"
#include "base/util.h"

enum pod_place_kind {
    POD_PLACE_NONE = 0, /* not in a pod: KUBERNETES_SERVICE_HOST, which the kubelet sets, is not */
    POD_PLACE_PLAIN,    /* in a pod that has no index */
    POD_PLACE_INDEXED,  /* in a pod of an Indexed Job */
};

#define POD_NAME_MAX 254    /* bytes of a full name, with the NUL: RFC 1035 */
#define POD_ADDR_MAX 64     /* of an address in text, with the NUL */
#define POD_ADDRS_MAX 8     /* addresses of one pod that are kept */
#define POD_HOSTS_MAX 65536 /* bytes of /etc/hosts that are read; the kubelet's has far fewer */

/* Texts are borrowed. */
struct pod_facts {
    const char *hosts; /* /etc/hosts; NULL: can't be read */
};

struct pod_place {
    enum pod_place_kind kind;
    uint32_t index;               /* INDEXED: JOB_COMPLETION_INDEX */
    const char *bad_index;        /* PLAIN: its value, if that is no number; borrowed. NULL: none */
    char full_name[POD_NAME_MAX]; /* INDEXED: of this pod, by which others find it; "": it has none
                                   */
    char first_host[POD_NAME_MAX]; /* INDEXED: full_name of the pod with index 0; "": not known */
    char job[POD_NAME_MAX];        /* INDEXED: the Job's name; "": not known */
    char addrs[POD_ADDRS_MAX][POD_ADDR_MAX]; /* the pod's own, from the lines with its full name */
    uint32_t n_addrs;
};

/* Fills in *ret. An index that is no number is none (bad_index). */
void pod_place_read(char *const *envp, const struct pod_facts *facts, struct pod_place *ret);

/* Whether a host, as it is written in an endpoint, is this pod: its full name, the names that begin
 * it ("JOB-INDEX", "JOB-INDEX.SUBDOMAIN"), one of its addresses, or loopback. */
bool pod_place_is_own(const struct pod_place *p, const char *host);
