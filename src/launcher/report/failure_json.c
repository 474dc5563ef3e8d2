#include "launcher/report/failure_json.h"

#include "base/json/json.h"
#include "launcher/report/failure_text.h"

void failure_json(const char *entrypoint, const struct failure *f, struct strbuf *ret) {
    struct json_writer w = json_writer_of(ret);
    _cleanup_(strbuf_fini) struct strbuf cause = {0};
    failure_cause_text(f, &cause);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "entrypoint", entrypoint);
    json_write_string(&w, "node", f->node);
    json_write_string(&w, "cause", strbuf_text(&cause));
    if (f->kind != FAILURE_NODE && (f->kind != FAILURE_HANG || f->node[0] != '\0')) {
        json_write_u64(&w, "rank", f->rank);
        json_write_u64(&w, "local_rank", f->local_rank);
        json_write_i64(&w, "pid", f->pid);
        json_write_i64(&w, "exitcode", failure_exit_code(f));
    }
    json_write_string(&w, "error_file", f->error_file);
    json_write_string(&w, "text", f->text);
    json_write_object_end(&w);
    strbuf_add_char(ret, '\n');
}
