#include "report/table.h"

#include "failing_alloc.h"
#include "test.h"

#define PM "\xc2\xb1"

/* Two methods at two rates, with a published figure in the first column. */
static sfp__table *example(void)
{
    sfp__table *t = NULL;
    MUST(sfp__table_create(2, 4, &t, &err));
    MUST(sfp__table_set_text(&t->title, "Accuracy at two rates", &err));
    MUST(sfp__table_set_text(&t->caption, "Three seeds.", &err));
    MUST(sfp__table_set_text(&t->row_name[0], "streamfp", &err));
    MUST(sfp__table_set_text(&t->row_name[1], "a|b_%", &err));
    for (int k = 0; k < 4; k++) {
        MUST(sfp__table_set_text(&t->group_name[k], k < 2 ? "rate 100" : "rate 400", &err));
        MUST(sfp__table_set_text(&t->column_name[k], k % 2 ? "Runtime" : "Acc", &err));
        t->percent[k] = k % 2 == 0;
        t->decimals[k] = k % 2 ? 1 : 2;
        t->lower_is_better[k] = k % 2;
    }
    sfp__table_set_values(t, 0, 0, 3, (double[]){0.70, 0.72, 0.77});
    sfp__table_set_values(t, 1, 0, 1, (double[]){0.8});
    sfp__table_set_values(t, 0, 1, 2, (double[]){10, NAN});
    sfp__table_set_values(t, 1, 1, 1, (double[]){20});
    sfp__table_set_values(t, 0, 2, 1, (double[]){0.5});
    sfp__table_at(t, 1, 3)->text = "-";
    sfp__table_set_paper(t, 0, 0, 0.75, 0.005);
    sfp__table_set_paper(t, 1, 0, 0.75, NAN);
    sfp__table_mark_best(t);
    return t;
}

static const char *written(const sfp__table *t, sfp__table_format format)
{
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    sfp__table_write(t, format, &out);
    assert_false(out.failed);
    return kept_print("%s", out.s);
}

TEST(values_of_a_cell_exclude_nan_and_get_a_verdict)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    const sfp__table_cell *c = sfp__table_at(t, 0, 0);
    assert_int_equal(c->n, 3);
    assert_true(fabs(c->mean - 0.73) < 1e-12 && fabs(c->half - 0.0896) < 1e-4);
    assert_string_equal(c->verdict, "same");
    assert_string_equal(sfp__table_at(t, 1, 0)->verdict, "above");
    assert_int_equal(sfp__table_at(t, 0, 1)->n, 1);
    assert_true(isnan(sfp__table_at(t, 0, 1)->half));
    assert_int_equal(sfp__table_at(t, 1, 3)->n, 0);
}

TEST(two_runs_have_no_interval_for_people)
{
    static const sfp__table_format formats[] = {SFP__TABLE_TEXT, SFP__TABLE_MARKDOWN, SFP__TABLE_LATEX, SFP__TABLE_HTML};
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    OWNED_BY(sfp__text_done) sfp__text csv = {0};
    MUST(sfp__table_create(1, 1, &t, NULL));
    MUST(sfp__table_set_text(&t->row_name[0], "one", NULL));
    MUST(sfp__table_set_text(&t->column_name[0], "Acc", NULL));
    sfp__table_set_values(t, 0, 0, 2, (double[]){0.25, 0.75});
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        OWNED_BY(sfp__text_done) sfp__text out = {0};
        sfp__table_write(t, formats[i], &out);
        assert_non_null(strstr(out.s, "0.50"));
        assert_non_null(strstr(out.s, "Means of two runs have no interval."));
        assert_true(!strstr(out.s, "3.18") && !strstr(out.s, "Student"));
    }
    sfp__table_write(t, SFP__TABLE_CSV, &csv);
    assert_non_null(strstr(csv.s, "one,0.5,3.176551184,2\n"));
}

TEST(the_best_of_a_column_is_marked)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    static const bool want[2][4] = {{false, true, false, false}, {true, false, false, false}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(sfp__table_at(t, i, k)->best, want[i][k]); /* a column with one value has no best one */
    sfp__table_set_values(t, 0, 0, 1, (double[]){0.800001});            /* printed like the other one: 80.00 */
    sfp__table_mark_best(t);
    assert_false(sfp__table_at(t, 0, 0)->best || sfp__table_at(t, 1, 0)->best);
}

TEST(text_aligns_columns_below_their_groups)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    assert_string_equal(written(t, SFP__TABLE_TEXT),
                        "Accuracy at two rates\n\n"
                        "          rate 100                                    rate 400\n"
                        "method                                  Acc  Runtime    Acc  Runtime\n"
                        "--------------------------------------------------------------------\n"
                        "streamfp  73.00 " PM " 8.96 (75.00 " PM " 0.50, same)    *10.0  50.00        -\n"
                        "a|b_%                 *80.00 (75.00, above)     20.0      -        -\n\n"
                        "Three seeds. " PM ": half the width of the 95 % Student-t interval. *: the best mean of its column. In\n"
                        "parentheses: the published figure. It is the same if it lies in our interval, widened by its spread\n"
                        "(one point if none is given); otherwise our value is above or below it.\n");
}

TEST(text_that_is_too_wide_is_split_between_groups)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    t->width = 62; /* three columns would fit */
    const char *text = written(t, SFP__TABLE_TEXT), *second = strstr(text, "\n\n          rate 400\n");
    assert_non_null(second);
    assert_non_null(strstr(text, "          rate 100\nmethod"));
    assert_non_null(strstr(second, "method      Acc  Runtime\n------------------------\nstreamfp  50.00        -\n"));
    t->width = 1; /* one column per part */
    text = written(t, SFP__TABLE_TEXT);
    assert_non_null(strstr(text, "method    Runtime\n"));
}

TEST(markdown_escapes_pipes)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    const char *text = written(t, SFP__TABLE_MARKDOWN);
    assert_non_null(strstr(text, "**Accuracy at two rates**\n\n| method | rate 100: Acc | rate 100: Runtime | rate 400: Acc |"));
    assert_non_null(strstr(text, "|\n|---|---:|---:|---:|---:|\n| streamfp | 73.00 " PM " 8.96 (75.00 " PM " 0.50, same) | "));
    assert_non_null(strstr(text, "| a\\|b\\_% | **80.00** (75.00, above) | 20.0 | - | - |\n\nThree seeds. "));
}

TEST(csv_has_all_digits_and_quotes)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    MUST(sfp__table_set_text(&t->row_name[1], "say \"a, b\"", &err));
    assert_string_equal(written(t, SFP__TABLE_CSV),
                        "method,rate 100: Acc,rate 100: Acc half,rate 100: Acc n,rate 100: Acc paper,rate 100: Acc paper_pm,"
                        "rate 100: Acc verdict,rate 100: Runtime,rate 100: Runtime half,rate 100: Runtime n,rate 400: Acc,"
                        "rate 400: Acc half,rate 400: Acc n,rate 400: Runtime,rate 400: Runtime half,rate 400: Runtime n\n"
                        "streamfp,0.73,0.08956685895,3,0.75,0.005,same,10,,1,0.5,,1,,,0\n"
                        "\"say \"\"a, b\"\"\",0.8,,1,0.75,,above,20,,1,,,0,,,0\n");
}

TEST(latex_is_a_booktabs_table)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    MUST(sfp__table_set_text(&t->label, "tab:rates", &err));
    MUST(sfp__table_set_text(&t->row_name[0], "\\x{~^} #1 --lr $5 & <c>", &err));
    const char *text = written(t, SFP__TABLE_LATEX);
    static const char *const parts[] = {
        "% needs \\usepackage{booktabs}\n\\begin{table}\n\\centering\n\\caption{Accuracy at two rates. Three seeds. $\\pm$: half",
        "95\\,\\% Student-t",
        "\\label{tab:rates}\n\\par\\medskip\n\\begin{tabular}{lrrrr}\n\\toprule\n",
        " & \\multicolumn{2}{c}{rate 100} & \\multicolumn{2}{c}{rate 400} \\\\\n\\cmidrule(lr){2-3}\\cmidrule(lr){4-5}\nmethod & "
        "Acc",
        "\n\\textbackslash{}x\\{\\textasciitilde{}\\textasciicircum{}\\} \\#1 -{}-lr \\$5 \\& \\textless{}c\\textgreater{} & "
        "\\begin{tabular}[t]{@{}r@{}}73.00{\\scriptsize\\,$\\pm$\\,8.96}\\\\{\\scriptsize(75.00",
        "a\\textbar{}b\\_\\% & \\begin{tabular}[t]{@{}r@{}}\\textbf{80.00}\\\\{\\scriptsize(75.00, above)}\\end{tabular} & 20.0",
        " & 20.0 & -- & - \\\\\n\\bottomrule\n\\end{tabular}\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i]))
            fail_msg("missing: %s\nin: %s", parts[i], text);
}

TEST(a_wide_latex_table_is_scaled)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    MUST(sfp__table_create(1, 9, &t, &err));
    const char *text = written(t, SFP__TABLE_LATEX);
    assert_non_null(strstr(text, "and \\usepackage{graphicx}"));
    assert_non_null(strstr(text, "\\resizebox{\\linewidth}{!}{%\n\\begin{tabular}"));
    assert_non_null(strstr(text, "\\end{tabular}}\n"));
}

TEST(html_escapes_names)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    MUST(sfp__table_set_text(&t->row_name[0], "<script>", &err));
    const char *text = written(t, SFP__TABLE_HTML);
    assert_null(strstr(text, "<script>"));
    assert_non_null(strstr(text, "<th colspan=\"2\">rate 100</th><th colspan=\"2\">rate 400</th>"));
    assert_non_null(strstr(text, "<tr><th>&lt;script&gt;</th><td>73.00 <small>&plusmn; 8.96</small><div>(75.00"));
}

TEST(control_characters_do_not_reach_the_output)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = example();
    MUST(sfp__table_set_text(&t->row_name[0], "a\033[31m\n\xff", &err));
    MUST(sfp__table_set_text(&t->column_name[0], "b\rc", &err));
    for (int f = SFP__TABLE_TEXT; f <= SFP__TABLE_HTML; f++) {
        const char *text = written(t, (sfp__table_format)f);
        assert_true(!strchr(text, '\033') && !strchr(text, '\r') && !strchr(text, '\xff'));
    }
    assert_non_null(strstr(written(t, SFP__TABLE_CSV), "\na?[31m??,0.73,"));
}

static sfp_status create_and_write(sfp_error *alloc_err)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    TRY(sfp__table_create(3, 2, &t, alloc_err));
    TRY(sfp__table_set_text(&t->row_name[2], "name", alloc_err));
    for (int f = SFP__TABLE_TEXT; f <= SFP__TABLE_HTML; f++)
        sfp__table_write(t, (sfp__table_format)f, &out);
    return out.failed ? sfp__fail_nomem(alloc_err) : SFP_OK;
}

TEST(out_of_memory_is_reported)
{
    assert_true(FAIL_EACH_ALLOCATION(create_and_write(alloc_err), true) > 3);
}
