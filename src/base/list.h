/* A doubly linked list whose links are fields of the elements. It does not own them.
 *
 *     struct list waiters = LIST_INIT(waiters);
 *     list_append(&waiters, &w->link);
 *     LIST_FOR_EACH(struct waiter, w, &waiters, link) …   (w may be removed in the body) */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct list {
    struct list *prev, *next;
};

#define LIST_INIT(name) \
    { &(name), &(name) }

static inline void list_init(struct list *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
/* True while the element is in a list. list_init() or list_remove() must have set the link. */
static inline bool list_linked(const struct list *l) { return l->next != NULL && l->next != l; }

static inline void list_insert_between(struct list *prev, struct list *next, struct list *e) {
    e->prev = prev;
    e->next = next;
    prev->next = e;
    next->prev = e;
}
static inline void list_append(struct list *head, struct list *e) {
    list_insert_between(head->prev, head, e);
}
static inline void list_prepend(struct list *head, struct list *e) {
    list_insert_between(head, head->next, e);
}
/* Removes the element; does nothing if it is in no list. */
static inline void list_remove(struct list *e) {
    if (e->next != NULL) {
        e->prev->next = e->next;
        e->next->prev = e->prev;
    }
    list_init(e);
}

#define LIST_FIRST(type, head, member) \
    (list_empty(head) ? NULL : CONTAINER_OF((head)->next, type, member))

#define LIST_FOR_EACH(type, it, head, member)                            \
    for (type *it = CONTAINER_OF((head)->next, type, member),            \
              *it##_next_ = CONTAINER_OF(it->member.next, type, member); \
         &it->member != (head);                                          \
         it = it##_next_, it##_next_ = CONTAINER_OF(it->member.next, type, member))
