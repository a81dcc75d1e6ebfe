/* The formats of a table. Formats for people (all but CSV) show a value as MEAN +- HALF with the decimals of its column, then the
 * published figure in parentheses and the verdict. Sentences below the table explain the signs that it uses. */
#include "report/table_internal.h"

#include "report/html.h"
#include "results/result.h"
#include "results/statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PM "\xc2\xb1" /* the sign +- */

/* ------------------------------------------------------------------- escaping */

void sfp__put_escaped(sfp__text *out, const char *s, sfp__escape_fn *escape)
{
    bool shown;
    for (int n; *s; s += n) {
        n = sfp__utf8_shown(s, &shown);
        const char *other = !shown ? "?" : escape && n == 1 ? escape(s) : NULL;
        if (other)
            sfp__text_put(out, other);
        else
            sfp__text_putn(out, s, (size_t)n);
    }
}

/* Returns the entry of a list of pairs "CHARACTER TEXT" for a character; NULL: none. */
static const char *find_escape(char c, size_t count, const char *const (*list)[2])
{
    for (size_t i = 0; i < count; i++)
        if (list[i][0][0] == c)
            return list[i][1];
    return NULL;
}

static const char *escape_markdown(const char *s)
{
    static const char *const list[][2] = {{"\\", "\\\\"}, {"|", "\\|"},   {"*", "\\*"}, {"_", "\\_"},
                                          {"`", "\\`"},   {"[", "\\["},   {"]", "\\]"}, {"<", "&lt;"},
                                          {">", "&gt;"},  {"&", "&amp;"}, {"~", "\\~"}, {"$", "\\$"}};
    return find_escape(*s, sizeof list / sizeof *list, list);
}

static const char *escape_latex(const char *s)
{
    static const char *const list[][2] = {{"\\", "\\textbackslash{}"},
                                          {"{", "\\{"},
                                          {"}", "\\}"},
                                          {"$", "\\$"},
                                          {"&", "\\&"},
                                          {"#", "\\#"},
                                          {"%", "\\%"},
                                          {"_", "\\_"},
                                          {"~", "\\textasciitilde{}"},
                                          {"^", "\\textasciicircum{}"},
                                          {"<", "\\textless{}"},
                                          {">", "\\textgreater{}"},
                                          {"|", "\\textbar{}"},
                                          {"\"", "''"},
                                          {"[", "{[}"},
                                          {"]", "{]}"}};
    if (*s == '-' && s[1] == '-')
        return "-{}"; /* "--" would become a dash */
    return find_escape(*s, sizeof list / sizeof *list, list);
}

static const char *escape_csv(const char *s)
{
    return *s == '"' ? "\"\"" : NULL;
}

/* ---------------------------------------------------------------- common parts */

const char *sfp__table_row_heading(const sfp__table *t)
{
    return t->row_heading ? t->row_heading : "method";
}

bool sfp__table_same_group(const sfp__table *t, int a, int b)
{
    return strcmp(sfp__text_or_empty(t->group_name[a]), sfp__text_or_empty(t->group_name[b])) == 0;
}

int sfp__table_group_end(const sfp__table *t, int begin, int end)
{
    int k = begin + 1;
    while (k < end && sfp__table_same_group(t, begin, k))
        k++;
    return k;
}

bool sfp__table_has_groups(const sfp__table *t)
{
    for (int k = 0; k < t->columns; k++)
        if (t->group_name[k])
            return true;
    return false;
}

/* Formats a value of a column; returns buf. */
static const char *format_value(const sfp__table *t, int column, double x, char buf[SFP__SHORT])
{
    double shown = t->percent[column] ? 100 * x : x;
    (void)snprintf(buf, SFP__SHORT, "%.*f", t->decimals[column], sfp__no_minus_zero(shown, t->decimals[column]));
    return buf;
}

typedef struct signs {
    bool interval, paper, best;
    bool few; /* a mean has too few repetitions for an interval */
} signs;

/* Returns which signs the cells of a table use. */
static signs find_signs(const sfp__table *t)
{
    signs s = {0};
    for (int i = 0; i < t->rows * t->columns; i++) {
        const sfp__table_cell *c = &t->cell[i];
        bool number = c->n > 0 && !c->text;
        s.interval = s.interval || (number && isfinite(sfp__shown_half(c->n, c->half)));
        s.few = s.few || (number && isfinite(c->half) && c->n < SFP__INTERVAL_RUNS);
        s.paper = s.paper || isfinite(c->paper);
        s.best = s.best || (number && c->best);
    }
    return s;
}

void sfp__table_put_notes(const sfp__table *t, const char *pm, const char *percent, const char *star, sfp__text *out)
{
    signs s = find_signs(t);
    const char *between = t->caption ? " " : "";
    if (s.interval)
        sfp__text_printf(out, "%s%s: half the width of the 95%s Student-t interval.", between, pm, percent);
    between = s.interval ? " " : between;
    if (s.few)
        sfp__text_printf(out, "%sMeans of two runs have no interval.", between);
    between = s.few ? " " : between;
    if (s.best)
        sfp__text_printf(out, "%s%s: the best mean of its column.", between, star ? star : "Bold");
    between = s.best ? " " : between;
    if (s.paper)
        sfp__text_printf(out,
                         "%sIn parentheses: the published figure. It is the same if it lies in our interval, widened by its "
                         "spread (one point if none is given); otherwise our value is above or below it.",
                         between);
}

static void put_text(const sfp__cell_style *style, const char *s, sfp__text *out)
{
    if (style->html)
        sfp__put_html(out, s);
    else
        sfp__put_escaped(out, s, style->escape);
}

static void put_interval(const sfp__table *t, int column, double mean, double half, const sfp__cell_style *style, sfp__text *out)
{
    char buf[SFP__SHORT];
    sfp__text_put(out, format_value(t, column, mean, buf));
    if (isfinite(half))
        sfp__text_printf(out, "%s%s%s", style->pm, format_value(t, column, half, buf), style->end);
}

void sfp__table_put_cell(const sfp__table *t, int row, int column, const sfp__cell_style *style, sfp__text *out)
{
    const sfp__table_cell *c = sfp__table_at(t, row, column);
    char buf[SFP__SHORT];
    if (isfinite(c->paper))
        sfp__text_put(out, sfp__text_or_empty(style->with_paper));
    if (c->text)
        put_text(style, c->text, out);
    else if (c->n == 0)
        sfp__text_put(out, style->missing);
    else {
        sfp__text_printf(out, "%s%s%s", c->best ? style->before : "", format_value(t, column, c->mean, buf),
                         c->best ? style->after : "");
        if (isfinite(sfp__shown_half(c->n, c->half)))
            sfp__text_printf(out, "%s%s%s", style->pm, format_value(t, column, c->half, buf), style->end);
    }
    if (isfinite(c->paper)) {
        sfp__text_put(out, style->paper);
        put_interval(t, column, c->paper, c->paper_pm, style, out);
        if (c->verdict)
            sfp__text_printf(out, ", %s", c->verdict);
        sfp__text_put(out, style->paper_end);
    }
}

/* -------------------------------------------------------------------- Markdown */

static void write_markdown(const sfp__table *t, sfp__text *out)
{
    static const sfp__cell_style style = {.missing = "-",
                                          .before = "**",
                                          .after = "**",
                                          .pm = " " PM " ",
                                          .end = "",
                                          .paper = " (",
                                          .paper_end = ")",
                                          .escape = escape_markdown};
    if (t->title) {
        sfp__text_put(out, "**");
        sfp__put_escaped(out, t->title, escape_markdown);
        sfp__text_put(out, "**\n\n");
    }
    sfp__text_put(out, "| ");
    sfp__put_escaped(out, sfp__table_row_heading(t), escape_markdown);
    for (int k = 0; k < t->columns; k++) {
        sfp__text_put(out, " | ");
        sfp__put_escaped(out, sfp__text_or_empty(t->group_name[k]), escape_markdown);
        sfp__text_put(out, t->group_name[k] ? ": " : "");
        sfp__put_escaped(out, sfp__text_or_empty(t->column_name[k]), escape_markdown);
    }
    sfp__text_put(out, " |\n|---");
    for (int k = 0; k < t->columns; k++)
        sfp__text_put(out, "|---:");
    sfp__text_put(out, "|\n");
    for (int i = 0; i < t->rows; i++) {
        sfp__text_put(out, "| ");
        sfp__put_escaped(out, sfp__text_or_empty(t->row_name[i]), escape_markdown);
        for (int k = 0; k < t->columns; k++) {
            sfp__text_put(out, " | ");
            sfp__table_put_cell(t, i, k, &style, out);
        }
        sfp__text_put(out, " |\n");
    }
    sfp__text_put(out, "\n");
    sfp__put_escaped(out, sfp__text_or_empty(t->caption), escape_markdown);
    sfp__table_put_notes(t, PM, " %", NULL, out);
    sfp__text_put(out, "\n");
}

/* ------------------------------------------------------------------------- CSV */

/* Writes a field "GROUP: NAME SUFFIX", in quotes if it needs them. */
static void put_csv_field(const char *group, const char *name, const char *suffix, sfp__text *out)
{
    bool quoted = strpbrk(name, ",\"") || strpbrk(sfp__text_or_empty(group), ",\"") || *name == ' ';
    sfp__text_put(out, quoted ? "\"" : "");
    sfp__put_escaped(out, sfp__text_or_empty(group), escape_csv);
    sfp__text_put(out, group ? ": " : "");
    sfp__put_escaped(out, name, escape_csv);
    sfp__text_printf(out, "%s%s", suffix, quoted ? "\"" : "");
}

static void put_csv_number(double x, sfp__text *out)
{
    sfp__text_put(out, ",");
    if (isfinite(x))
        sfp__text_printf(out, "%.10g", x);
}

static bool column_has_paper(const sfp__table *t, int column)
{
    for (int i = 0; i < t->rows; i++)
        if (isfinite(sfp__table_at(t, i, column)->paper))
            return true;
    return false;
}

static void put_csv_headings(const sfp__table *t, int column, sfp__text *out)
{
    static const char *const suffix[] = {"", " half", " n", " paper", " paper_pm", " verdict"};
    int count = column_has_paper(t, column) ? 6 : 3;
    for (int i = 0; i < count; i++) {
        sfp__text_put(out, ",");
        put_csv_field(t->group_name[column], sfp__text_or_empty(t->column_name[column]), suffix[i], out);
    }
}

static void put_csv_cell(const sfp__table *t, int row, int column, sfp__text *out)
{
    const sfp__table_cell *c = sfp__table_at(t, row, column);
    put_csv_number(c->n > 0 ? c->mean : NAN, out);
    put_csv_number(c->n > 0 ? c->half : NAN, out);
    sfp__text_printf(out, ",%d", c->n);
    if (!column_has_paper(t, column))
        return;
    put_csv_number(c->paper, out);
    put_csv_number(c->paper_pm, out);
    sfp__text_put(out, ",");
    put_csv_field(NULL, sfp__text_or_empty(c->verdict), "", out);
}

static void write_csv(const sfp__table *t, sfp__text *out)
{
    put_csv_field(NULL, sfp__table_row_heading(t), "", out);
    for (int k = 0; k < t->columns; k++)
        put_csv_headings(t, k, out);
    sfp__text_put(out, "\n");
    for (int i = 0; i < t->rows; i++) {
        put_csv_field(NULL, sfp__text_or_empty(t->row_name[i]), "", out);
        for (int k = 0; k < t->columns; k++)
            put_csv_cell(t, i, k, out);
        sfp__text_put(out, "\n");
    }
}

/* ----------------------------------------------------------------------- LaTeX */

enum { LATEX_COLUMNS = 6 }; /* a table with more columns is scaled to the width of the text */

static void put_latex_headings(const sfp__table *t, sfp__text *out)
{
    for (int k = 0, end; sfp__table_has_groups(t) && k < t->columns; k = end) {
        end = sfp__table_group_end(t, k, t->columns);
        sfp__text_printf(out, " & \\multicolumn{%d}{c}{", end - k);
        sfp__put_escaped(out, sfp__text_or_empty(t->group_name[k]), escape_latex);
        sfp__text_put(out, "}");
    }
    sfp__text_put(out, sfp__table_has_groups(t) ? " \\\\\n" : "");
    for (int k = 0, end; sfp__table_has_groups(t) && k < t->columns; k = end) {
        end = sfp__table_group_end(t, k, t->columns);
        if (t->group_name[k])
            sfp__text_printf(out, "\\cmidrule(lr){%d-%d}", k + 2, end + 1);
    }
    sfp__text_put(out, sfp__table_has_groups(t) ? "\n" : "");
    sfp__put_escaped(out, sfp__table_row_heading(t), escape_latex);
    for (int k = 0; k < t->columns; k++) {
        sfp__text_put(out, " & ");
        sfp__put_escaped(out, sfp__text_or_empty(t->column_name[k]), escape_latex);
    }
    sfp__text_put(out, " \\\\\n\\midrule\n");
}

static void put_latex_caption(const sfp__table *t, sfp__text *out)
{
    sfp__text_put(out, "\\caption{");
    sfp__put_escaped(out, sfp__text_or_empty(t->title), escape_latex);
    sfp__text_put(out, t->title ? ". " : "");
    sfp__put_escaped(out, sfp__text_or_empty(t->caption), escape_latex);
    sfp__table_put_notes(t, "$\\pm$", "\\,\\%", NULL, out);
    sfp__text_put(out, "}\n");
    if (t->label)
        sfp__text_printf(out, "\\label{%s}\n", t->label);
    sfp__text_put(out, "\\par\\medskip\n");
}

static void write_latex(const sfp__table *t, sfp__text *out)
{
    static const sfp__cell_style style = {.missing = "--",
                                          .before = "\\textbf{",
                                          .after = "}",
                                          .pm = "{\\scriptsize\\,$\\pm$\\,",
                                          .end = "}",
                                          .paper = "\\\\{\\scriptsize(",
                                          .paper_end = ")}\\end{tabular}",
                                          .with_paper = "\\begin{tabular}[t]{@{}r@{}}",
                                          .escape = escape_latex};
    bool wide = t->columns > LATEX_COLUMNS;
    sfp__text_printf(out, "%% needs \\usepackage{booktabs}%s\n\\begin{table}\n\\centering\n",
                     wide ? " and \\usepackage{graphicx}" : "");
    put_latex_caption(t, out);
    sfp__text_put(out, wide ? "\\resizebox{\\linewidth}{!}{%\n" : "");
    sfp__text_put(out, "\\begin{tabular}{l");
    sfp__text_fill(out, 'r', (size_t)t->columns);
    sfp__text_put(out, "}\n\\toprule\n");
    put_latex_headings(t, out);
    for (int i = 0; i < t->rows; i++) {
        sfp__put_escaped(out, sfp__text_or_empty(t->row_name[i]), escape_latex);
        for (int k = 0; k < t->columns; k++) {
            sfp__text_put(out, " & ");
            sfp__table_put_cell(t, i, k, &style, out);
        }
        sfp__text_put(out, " \\\\\n");
    }
    sfp__text_printf(out, "\\bottomrule\n\\end{tabular}%s\n\\end{table}\n", wide ? "}" : "");
}

/* ------------------------------------------------------------------------ HTML */

static void put_html_headings(const sfp__table *t, sfp__text *out)
{
    sfp__text_put(out, "<thead>");
    if (sfp__table_has_groups(t)) {
        sfp__text_put(out, "<tr><th></th>");
        for (int k = 0, end; k < t->columns; k = end) {
            end = sfp__table_group_end(t, k, t->columns);
            sfp__text_printf(out, "<th colspan=\"%d\">", end - k);
            sfp__put_html(out, sfp__text_or_empty(t->group_name[k]));
            sfp__text_put(out, "</th>");
        }
        sfp__text_put(out, "</tr>");
    }
    sfp__text_put(out, "<tr><th>");
    sfp__put_html(out, sfp__table_row_heading(t));
    for (int k = 0; k < t->columns; k++) {
        sfp__text_put(out, "</th><th>");
        sfp__put_html(out, sfp__text_or_empty(t->column_name[k]));
    }
    sfp__text_put(out, "</th></tr></thead>");
}

static void write_html(const sfp__table *t, sfp__text *out)
{
    static const sfp__cell_style style = {.missing = "&ndash;",
                                          .before = "<b>",
                                          .after = "</b>",
                                          .pm = " <small>&plusmn; ",
                                          .end = "</small>",
                                          .paper = "<div>(",
                                          .paper_end = ")</div>",
                                          .html = true};
    sfp__text_put(out, "<section class=\"card\">");
    if (t->title) {
        sfp__text_put(out, "<h2>");
        sfp__put_html(out, t->title);
        sfp__text_put(out, "</h2>");
    }
    sfp__text_put(out, "<div class=\"wide\"><table class=\"results\">");
    put_html_headings(t, out);
    sfp__text_put(out, "<tbody>");
    for (int i = 0; i < t->rows; i++) {
        sfp__text_put(out, "<tr><th>");
        sfp__put_html(out, sfp__text_or_empty(t->row_name[i]));
        sfp__text_put(out, "</th>");
        for (int k = 0; k < t->columns; k++) {
            sfp__text_put(out, "<td>");
            sfp__table_put_cell(t, i, k, &style, out);
            sfp__text_put(out, "</td>");
        }
        sfp__text_put(out, "</tr>");
    }
    sfp__text_put(out, "</tbody></table></div><p class=\"note\">");
    sfp__put_html(out, sfp__text_or_empty(t->caption));
    sfp__table_put_notes(t, "&plusmn;", "&nbsp;%", NULL, out);
    sfp__text_put(out, "</p></section>");
}

void sfp__table_write(const sfp__table *t, sfp__table_format format, sfp__text *out)
{
    switch (format) {
    case SFP__TABLE_TEXT:
        sfp__table_write_text(t, out);
        return;
    case SFP__TABLE_MARKDOWN:
        write_markdown(t, out);
        return;
    case SFP__TABLE_CSV:
        write_csv(t, out);
        return;
    case SFP__TABLE_LATEX:
        write_latex(t, out);
        return;
    case SFP__TABLE_HTML:
        write_html(t, out);
        return;
    }
}
