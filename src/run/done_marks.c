#include "run/done_marks.h"

#include "base/mem.h"

sfp_status sfp__done_marks_init(sfp_done_marks *m, size_t room, sfp_error *err)
{
    *m = (sfp_done_marks){.room = room, .until = INT64_MIN};
    if (room == 0)
        return SFP_OK;
    m->mark = sfp__calloc(room, sizeof *m->mark);
    m->changed = sfp__calloc(room, sizeof *m->changed);
    if (m->mark && m->changed)
        return SFP_OK;
    sfp__done_marks_done(m);
    return sfp__fail_nomem(err);
}

void sfp__done_marks_done(sfp_done_marks *m)
{
    sfp__free(m->mark);
    sfp__free(m->changed);
    *m = (sfp_done_marks){0};
}

void sfp__done_marks_put(sfp_done_marks *m, uint64_t mark, int64_t changed)
{
    if (!m->room)
        return;
    if (m->count == m->room && m->changed[m->next] > m->until)
        m->until = m->changed[m->next];
    m->mark[m->next] = mark;
    m->changed[m->next] = changed;
    m->next = (m->next + 1) % m->room;
    m->count += m->count < m->room;
}

json_t *sfp__done_marks_json(const sfp_done_marks *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->count; i++) {
        size_t at = (m->next + m->room - m->count + i) % m->room;
        (void)json_array_append_new(list, json_integer((json_int_t)m->mark[at]));
        (void)json_array_append_new(list, json_integer(m->changed[at]));
    }
    return list;
}

bool sfp__done_marks_read(sfp_done_marks *m, const json_t *list, int64_t until)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > 2 * m->room || n % 2 != 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!json_is_integer(json_array_get(list, i)))
            return false;
    for (size_t i = 0; i < n / 2; i++) {
        m->mark[i] = (uint64_t)json_integer_value(json_array_get(list, 2 * i));
        m->changed[i] = json_integer_value(json_array_get(list, 2 * i + 1));
    }
    m->count = n / 2;
    m->next = m->room ? m->count % m->room : 0;
    m->until = until;
    return true;
}
