#include "report/chart.h"

#include "report/html.h"

#include "failing_alloc.h"
#include "markup.h"

static const double x[] = {10, 20, 40, 80};

/* Series k: 0.5, 0.6, 0.7, 0.8 and a bit more for each k, with intervals of 0.02. */
static sfp__chart example(int count)
{
    sfp__chart c = {.title = "Accuracy <1>", .x_name = "rate", .y_name = "accuracy", .fraction = true, .count = count};
    for (int k = 0; k < count; k++) {
        double *y = kept_malloc(4 * sizeof *y), *half = kept_malloc(4 * sizeof *half);
        for (int i = 0; i < 4; i++) {
            y[i] = 0.5 + 0.1 * i + 0.003 * k;
            half[i] = 0.02;
        }
        c.series[k] = (sfp__chart_series){kept_print("series %d &", k), 4, x, y, half, NULL};
    }
    return c;
}

static const char *const names[] = {"one", "two", "three", "<four>"};

static sfp__chart example_bars(int count)
{
    sfp__chart c = example(count);
    c.categories = 4;
    c.category = names;
    return c;
}

typedef bool chart_fn(const sfp__chart *c, sfp__chart_form form, sfp__text *out);

static const char *drawn(chart_fn *fn, const sfp__chart *c, sfp__chart_form form)
{
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    assert_true(fn(c, form, &out));
    assert_false(out.failed);
    check_nesting(out.s);
    return kept_print("%s", out.s);
}

TEST(charts_escape_names)
{
    sfp__chart c = example_bars(2);
    for (int form = SFP__CHART_INLINE; form <= SFP__CHART_FILE; form++) {
        const char *lines = drawn(sfp__chart_lines, &c, (sfp__chart_form)form);
        const char *bars = drawn(sfp__chart_bars, &c, (sfp__chart_form)form);
        assert_non_null(strstr(lines, "series 1 &amp;"));
        assert_non_null(strstr(bars, "&lt;four&gt;"));
        assert_non_null(strstr(bars, "Accuracy &lt;1&gt;"));
        assert_true(!strstr(lines, "series 1 & ") && !strstr(bars, "<four>"));
    }
}

TEST(a_file_needs_no_style_sheet)
{
    sfp__chart c = example_bars(2);
    const char *files[] = {drawn(sfp__chart_lines, &c, SFP__CHART_FILE), drawn(sfp__chart_bars, &c, SFP__CHART_FILE)};
    for (int i = 0; i < 2; i++) {
        assert_null(strstr(files[i], "var("));
        assert_non_null(strstr(files[i], "<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert_non_null(strstr(files[i], ".tick,.label{fill:#5c6167}"));
        assert_non_null(strstr(files[i], "#0067a3")); /* the first series is blue */
    }
    assert_non_null(strstr(drawn(sfp__chart_bars, &c, SFP__CHART_INLINE), "fill:var(--blue)"));
}

/* Collects the heights of the names of series. */
static int label_heights(const char *svg, double *y)
{
    int n = 0;
    for (const char *at = svg; (at = strstr(at, "<text class=\"label\" x=\"")); at++) {
        double left;
        if (sscanf(at, "<text class=\"label\" x=\"%lf\" y=\"%lf\">series", &left, &y[n]) == 2 &&
            strstr(at, ">series") == strchr(at, '>'))
            n++;
    }
    return n;
}

TEST(names_of_lines_do_not_overlap)
{
    for (int count = 1; count <= SFP__CHART_SERIES; count++) {
        sfp__chart c = example(count);
        double y[SFP__CHART_SERIES + 1];
        assert_int_equal(label_heights(drawn(sfp__chart_lines, &c, SFP__CHART_FILE), y), count);
        for (int i = 1; i < count; i++)
            assert_true(y[i] - y[i - 1] >= 14.9);
        assert_true(y[0] > 30 && y[count - 1] < 340);
    }
}

TEST(intervals_and_published_figures_are_drawn)
{
    sfp__chart c = example_bars(2);
    const double paper[] = {NAN, 0.62, NAN, NAN};
    const char *bars = drawn(sfp__chart_bars, &c, SFP__CHART_INLINE);
    assert_int_equal(count(bars, "class=\"whisker\""), 8 + 1); /* one in the legend */
    assert_int_equal(count(bars, "class=\"paper\""), 0);
    c.series[1].paper = paper;
    bars = drawn(sfp__chart_bars, &c, SFP__CHART_INLINE);
    assert_int_equal(count(bars, "class=\"paper\""), 1 + 1);
    assert_non_null(strstr(bars, "<title>series 1 &amp;, two: 60.3 \xc2\xb1 2.0, published 62.0</title>"));
    assert_int_equal(count(drawn(sfp__chart_lines, &c, SFP__CHART_INLINE), "class=\"paper\""), 1 + 1);
    assert_int_equal(count(drawn(sfp__chart_lines, &c, SFP__CHART_INLINE), "fill-opacity:.16"), 2);
    sfp__chart many = example(5);
    assert_int_equal(count(drawn(sfp__chart_lines, &many, SFP__CHART_INLINE), "stroke-opacity:.75"), 5 * 4);
}

/* Counts the whiskers whose end at the right (of bars) or at the top (of lines) is an arrow: its sides begin before its tip. */
static int count_arrows(const char *svg, const char *class, bool bars)
{
    int n = 0;
    for (const char *at = svg; (at = strstr(at, class)); at++) {
        double from[2], end, tip[2], side[2];
        const char *path = strstr(at, " d=\"M");
        const char *format =
            bars ? " d=\"M%lf,%lfH%lfM%*f,%*fL%*f,%*fL%*f,%*fM%lf,%lfL%lf,%lf" : " d=\"M%lf,%lfV%lfM%lf,%lfL%lf,%lf";
        if (path && sscanf(path, format, &from[0], &from[1], &end, &side[0], &side[1], &tip[0], &tip[1]) == 7)
            n += bars ? side[0] < tip[0] : side[1] > tip[1];
    }
    return n;
}

TEST(intervals_beyond_the_axis_end_in_an_arrow)
{
    sfp__chart c = example_bars(4); /* four lines have whiskers, not bands */
    assert_int_equal(count_arrows(drawn(sfp__chart_bars, &c, SFP__CHART_FILE), "class=\"whisker\"", true), 0);
    assert_int_equal(count_arrows(drawn(sfp__chart_lines, &c, SFP__CHART_FILE), "class=\"curve\"", false), 0);
    ((double *)c.series[1].half)[2] = 0.9;
    assert_int_equal(count_arrows(drawn(sfp__chart_bars, &c, SFP__CHART_FILE), "class=\"whisker\"", true), 1);
    assert_int_equal(count_arrows(drawn(sfp__chart_lines, &c, SFP__CHART_FILE), "class=\"curve\"", false), 1);
}

TEST(long_names_of_bars_have_two_lines)
{
    static const char *const long_names[] = {"preset best, allocate fixed, img-size 0, select facility", "one", "two",
                                             "a-name-of-more-than-forty-four-characters-without-a-blank"};
    sfp__chart c = example_bars(1);
    c.category = long_names;
    const char *svg = drawn(sfp__chart_bars, &c, SFP__CHART_INLINE);
    assert_non_null(strstr(svg, ">preset best, allocate fixed, img-size 0,</text>"));
    assert_non_null(strstr(svg, ">select facility</text>"));
    assert_non_null(strstr(svg, ">a-name-of-more-than-forty-four-characters-w\xe2\x80\xa6</text>"));
}

TEST(few_values_of_x_are_the_ticks)
{
    sfp__chart c = example(1);
    c.log_x = true;
    const char *svg = drawn(sfp__chart_lines, &c, SFP__CHART_INLINE);
    for (int i = 0; i < 4; i++)
        assert_non_null(strstr(svg, kept_print("text-anchor=\"middle\">%.0f</text>", x[i])));
    c.log_x = false;
    c.series[0].x = (const double[]){1, 2, 3, 1000}; /* too close to each other */
    svg = drawn(sfp__chart_lines, &c, SFP__CHART_INLINE);
    assert_non_null(strstr(svg, "text-anchor=\"middle\">500</text>"));
    assert_null(strstr(svg, "text-anchor=\"middle\">2</text>"));
}

TEST(points_without_a_place_are_omitted)
{
    sfp__chart c = example(1);
    c.series[0].x = (const double[]){-1, 0, 10, 100};
    assert_int_equal(count(drawn(sfp__chart_lines, &c, SFP__CHART_INLINE), "<circle"), 4 + 1);
    c.log_x = true;
    assert_int_equal(count(drawn(sfp__chart_lines, &c, SFP__CHART_INLINE), "<circle"), 2 + 1); /* one before the name */
    c.series[0].y = (const double[]){1, 1, NAN, INFINITY};
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    assert_false(sfp__chart_lines(&c, SFP__CHART_INLINE, &out));
    assert_false(sfp__chart_bars(&c, SFP__CHART_INLINE, &out));
    assert_int_equal(out.length, 0);
}

TEST(coordinates_are_finite_for_any_values)
{
    static const double values[][2] = {{0, 0}, {-0.3, 0.2}, {-5, -5}, {1e-300, 1e-300}, {1e300, -1e300}, {3, 3}, {0.5, NAN}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int fraction = 0; fraction < 2; fraction++) {
            sfp__chart c = {.x_name = "x", .y_name = "y", .fraction = fraction, .categories = 2, .category = names, .count = 1};
            c.series[0] = (sfp__chart_series){NULL, 2, (const double[]){7, 7}, values[i], (const double[]){1e9, NAN}, NULL};
            const char *lines = drawn(sfp__chart_lines, &c, SFP__CHART_FILE), *bars = drawn(sfp__chart_bars, &c, SFP__CHART_FILE);
            assert_true(!strstr(lines, "nan") && !strstr(lines, "inf,") && !strstr(lines, "\"inf") && !strstr(lines, "-inf"));
            assert_true(!strstr(bars, "nan") && !strstr(bars, "\"inf") && !strstr(bars, "-inf"));
        }
}

static sfp_status chart_of_table(const sfp__table *t, sfp_error *alloc_err)
{
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    (void)sfp__chart_table(t, "Acc", SFP__CHART_FILE, &out);
    return out.failed ? sfp__fail_nomem(alloc_err) : SFP_OK;
}

TEST(a_table_has_a_chart_with_its_groups_as_series)
{
    OWNED_PTR(sfp__table_free) sfp__table *t = NULL;
    OWNED_BY(sfp__text_done) sfp__text out = {0};
    MUST(sfp__table_create(2, 4, &t, &err));
    for (int k = 0; k < 4; k++) {
        MUST(sfp__table_set_text(&t->group_name[k], k < 2 ? "slow" : "fast", &err));
        MUST(sfp__table_set_text(&t->column_name[k], k % 2 ? "Runtime" : "Acc", &err));
        t->percent[k] = k % 2 == 0;
        for (int i = 0; i < 2; i++)
            sfp__table_set_values(t, i, k, 2, (double[]){0.5 + 0.1 * i, 0.6 + 0.1 * k});
    }
    sfp__table_set_paper(t, 1, 2, 0.9, NAN);
    assert_true(sfp__chart_table(t, "Acc", SFP__CHART_INLINE, &out));
    check_nesting(out.s);
    assert_non_null(strstr(out.s, ">slow</text>"));
    assert_non_null(strstr(out.s, ">fast</text>"));
    assert_int_equal(count(out.s, "<title>"), 4);
    assert_int_equal(count(out.s, "class=\"paper\""), 1 + 1);
    assert_false(sfp__chart_table(t, "none", SFP__CHART_INLINE, &out));
    assert_true(FAIL_EACH_ALLOCATION(chart_of_table(t, alloc_err), true) > 2);
}
