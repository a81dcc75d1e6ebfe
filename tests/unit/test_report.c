#include "io/json_write.h"
#include "report/report.h"

#include "report/html.h"

#include "markup.h"
#include "run_result.h"
#include "temp_directory.h"
#include "test.h"

#include "io/image/image.h"

static char path[96];

static void make_dir(void)
{
    make_directory_for("report.html", path, sizeof path);
}

static void drop_dir(void)
{
    remove_file_and_directory(path);
}

AROUND_EACH(make_dir, drop_dir)

static char *report(const sfp_result *r, const sfp__report_images *p)
{
    MUST(sfp__report_write(r, p, path, &err));
    return file_text(path);
}

TEST(a_report_has_all_sections)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(3, 4);
    MUST(sfp__result_default(&r, "sigma", "0.5", NULL));
    char *text = report(&r, NULL);
    HOLDS(text, "<!DOCTYPE html>", "random+er on synthetic:1000", "Average accuracy", "Accuracy by task",
          "prequential accuracy so far", "training loss", "accuracy on the test set, mean of the tasks so far",
          "9 arrived without a label, and 4 of them were labelled later", "lag behind arrival", "arrival rate 150/s",
          "Where the time went", "Confusion", "Accuracy by class", "class 1", "<dt>Calibration error</dt>",
          "40.0 % before scaling", "accuracy over confidence", "6 predictions: confidence", "sigma 0.3", "All 4 options",
          "prefers-color-scheme:dark", "@media print", "A processor");
    LACKS(text, "<script", "http:", "https:", "src=", "@import", "not finished", "nan", "inf ");
    check_nesting(text);
}

TEST(an_empty_run_has_a_report)
{
    sfp_result r;
    for (int classes = 0; classes < 3; classes++) {
        MUST(sfp__result_init(&r, 1, classes, NULL));
        char *text = report(&r, &(sfp__report_images){0});
        assert_non_null(strstr(text, "This run is not finished: 0 of 1 tasks"));
        LACKS(text, "Confusion", "Calibration");
        assert_non_null(strstr(text, "Nothing was recorded."));
        assert_null(strstr(text, "nan"));
        check_nesting(text);
        sfp__result_done(&r);
    }
}

TEST(names_are_escaped)
{
    static const char evil[] = "</title></style><script>alert('1')</script>\"' onload=\"x\"&amp;\xff\x1b\xe2\x80\xae";
    OWNED_BY(sfp__result_done) sfp_result r = result_make(3, 4);
    sfp__thumb thumb = {.label = evil, .in_coreset = true};
    sfp__report_images p = {.batch_count = 1, .batch = &thumb, .coreset_count = 1, .buffer_count = 1, .buffer = &thumb};
    for (int i = 0; i < 3; i++) {
        sfp__free(r.task_names[i]);
        r.task_names[i] = sfp__strdup(evil);
        sfp__free(r.class_names[i]);
        r.class_names[i] = sfp__strdup(evil);
    }
    (void)snprintf(r.machine.cpu, sizeof r.machine.cpu, "%s", evil);
    (void)snprintf(r.started, sizeof r.started, "<script>");
    static const char *const keys[] = {"data", "test", "backbone", "sigma", "method", "<script>\"'"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        result_option(&r, keys[i], evil);
    char *text = report(&r, &p);
    LACKS(text, "<script", "onload=\"", "\x1b");
    assert_null(strstr(text, "\xe2\x80\xae")); /* turns the writing direction */
    assert_null(strstr(text, "\xff"));
    assert_int_equal(count(text, "</title>"), count(text, "<title>"));
    assert_int_equal(count(text, "</style>"), count(text, "<style>"));
    assert_true(count(text, "&lt;script&gt;") > 5);
    check_nesting(text);
}

TEST(many_classes_and_tasks_still_fit)
{
    const int sizes[][2] = {{2, 30}, {20, 100}, {70, 101}, {1, 1000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        OWNED_BY(sfp__result_done) sfp_result r = result_make(sizes[i][0], sizes[i][1]);
        char *text = report(&r, NULL);
        assert_int_equal(strstr(text, "aria-label=\"confusion matrix\"") != NULL, sizes[i][1] <= 100);
        assert_int_equal(strstr(text, "Lowest accuracies") != NULL, sizes[i][1] > 61);
        assert_non_null(strstr(text, "Most frequent confusions"));
        check_nesting(text);
    }
}

TEST(curves_with_non_finite_points_are_drawn_or_omitted)
{
    const double ys[][3] = {{0, 0, 0}, {1e300, 1e-300, 0}, {NAN, NAN, NAN}, {-1, -2, -3}, {1e-300, 1e-300, 1e-300}};
    const double xs[][3] = {{0, 0, 0}, {1, 2, 3}, {1e-300, 1e-299, 1e-299}, {1e300, 1e300, 1e300}, {-3, -2, -1}};
    for (size_t i = 0; i < 25; i++) {
        OWNED_BY(sfp__result_done) sfp_result r = {0};
        MUST(sfp__result_init(&r, 1, 1, NULL));
        for (int k = 0; k < 3; k++)
            MUST(sfp__curve_add(&r.curve[SFP__CURVE_LOSS], xs[i / 5][k], ys[i % 5][k], NULL));
        char *text = report(&r, NULL);
        assert_null(strstr(text, "nan"));
        check_nesting(text);
    }
}

TEST(one_point_is_reported_as_too_few_for_a_curve)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    MUST(sfp__result_init(&r, 1, 1, NULL));
    MUST(sfp__curve_add(&r.curve[SFP__CURVE_PREQUENTIAL], 60, NAN, NULL));
    MUST(sfp__curve_add(&r.curve[SFP__CURVE_LOSS], 60, 2.5, NULL));
    char *text = report(&r, NULL);
    assert_non_null(strstr(text, "<p class=\"note\">Too few timestamps for a curve.</p>"));
    assert_null(strstr(text, "Nothing was recorded."));
    check_nesting(text);
}

static unsigned digit(char c)
{
    return c == '+'   ? 62
           : c == '/' ? 63
           : c >= 'a' ? (unsigned)(c - 'a') + 26
           : c >= 'A' ? (unsigned)(c - 'A')
                      : (unsigned)(c - '0') + 52;
}

/* Decodes the n-th data: image of the page. */
static sfp__image sprite(const char *text, int n)
{
    static const char prefix[] = "data:image/png;base64,";
    for (; n >= 0; n--) {
        text = strstr(text, prefix);
        assert_non_null(text);
        text += sizeof prefix - 1;
    }
    size_t length = strcspn(text, ")"), size = 0;
    uint8_t *bytes = kept_malloc(length);
    assert_int_equal(length % 4, 0);
    for (size_t i = 0; i < length; i += 4) {
        unsigned v = 0;
        int pads = 0;
        for (size_t k = 0; k < 4; k++) {
            pads += text[i + k] == '=';
            v = v << 6 | (text[i + k] == '=' ? 0 : digit(text[i + k]));
        }
        for (int k = 0; k < 3 - pads; k++)
            bytes[size++] = (uint8_t)(v >> (16 - 8 * k));
    }
    sfp__image im;
    MUST(sfp__image_decode("sprite", bytes, size, NULL, &im, &err));
    return im;
}

static void check_pixel(const sfp__image *im, int x, int y, int r, int g, int b)
{
    const uint8_t *p = im->rgb + ((size_t)y * (size_t)im->width + (size_t)x) * 3;
    if (p[0] != r || p[1] != g || p[2] != b)
        fail_msg("pixel %d,%d is %d %d %d, expected %d %d %d", x, y, p[0], p[1], p[2], r, g, b);
}

TEST(thumbnails_of_a_sheet_are_one_image)
{
    uint8_t red[12] = {200, 0, 0, 200, 0, 0, 200, 0, 0, 200, 0, 0}, wide[6] = {0, 0, 99, 0, 0, 99};
    sfp__thumb batch[3] = {{.width = 2, .height = 2, .rgb = red, .label = "other one"},
                           {.width = 2, .height = 1, .rgb = wide, .label = "coreset one", .in_coreset = true},
                           {0}};
    sfp__thumb *kept = kept_calloc(500, sizeof *kept);
    for (int i = 0; i < 500; i++)
        kept[i] = (sfp__thumb){.width = 2, .height = 2, .rgb = red, .label = i % 2 ? "class 10" : "class 2", .age = (uint64_t)i};
    sfp__report_images p = {
        .batch_count = 3, .batch = batch, .coreset_count = 1, .rest_count = 1234, .buffer_count = 500, .buffer = kept};
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2);
    char *text = report(&r, &p);
    sfp__image first = sprite(text, 0), second = sprite(text, 1);
    assert_int_equal(first.width, 24 * 48);
    assert_int_equal(first.height, 48);
    check_pixel(&first, 24, 24, 0, 0, 99); /* the coreset is first; its image is half as high as wide */
    check_pixel(&first, 24, 2, 128, 128, 128);
    check_pixel(&first, 48 + 24, 2, 200, 0, 0);
    check_pixel(&first, 96 + 24, 24, 128, 128, 128); /* a thumbnail without pixels */
    assert_int_equal(second.height, 15 * 48);
    HOLDS(text, "<h3>Trained on: 1</h3>", "<h3>Not trained on: 1,234, 2 shown</h3>", "500 images, of which 360 are shown");
    assert_true(strstr(text, "class 2 <small>") < strstr(text, "class 10 <small>"));
    assert_int_equal(count(text, "data:image/png"), 2);
    check_nesting(text);
    sfp__image_done(&first);
    sfp__image_done(&second);
}

TEST(samples_of_a_closed_form_head_are_counted)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2);
    r.samples.offered = 300;
    r.samples.trained = r.samples.closed_form = 60;
    r.samples.dropped = 240;
    result_option(&r, "method", "ncm");
    HOLDS(report(&r, NULL), "The closed-form head learned from 60 of them; 240 were dropped because the learner was busy",
          "<dt>Learned in closed form</dt><dd>60<");
    r.samples.excluded = 240;
    char *text = report(&r, NULL);
    HOLDS(text, "240 were excluded because the last batch of their task was short");
    assert_null(strstr(text, "because the learner was busy"));
    assert_null(strstr(text, "Trained on"));
}

TEST(test_images_of_unseen_classes_are_counted)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2); /* 100 test images of known classes */
    assert_null(strstr(report(&r, NULL), "have not appeared"));
    for (int i = 0; i < 1010; i++)
        sfp__reliability_add(&r.calibration.bins, 0.5, false);
    HOLDS(report(&r, NULL), "1,000 of the 1,100 test images are of classes that have not appeared in the stream.");
    sfp__free(r.confusion);
    r.confusion = NULL; /* a class has appeared since the last evaluation */
    assert_null(strstr(report(&r, NULL), "have not appeared"));
}

TEST(tasks_of_classes_are_named_by_their_classes)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(2, 2);
    static const char *const tasks[] = {"class 0", "class 1"}, *const classes[] = {"obj3", "obj1"};
    for (int i = 0; i < 2; i++) {
        sfp__free(r.task_names[i]);
        sfp__free(r.class_names[i]);
        r.task_names[i] = sfp__strdup(tasks[i]);
        r.class_names[i] = sfp__strdup(classes[i]);
    }
    char *text = report(&r, NULL);
    HOLDS(text, "<title>after obj1, on obj3: ");
    assert_null(strstr(text, "class 1"));
}

/* The estimated width of a label is inside of the drawing. */
TEST(labels_of_axes_are_not_clipped)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2);
    OWNED_BY(sfp__text_done) sfp__text plot = {0};
    double at, width, x[] = {0, 1, 2}, y[] = {0.0002, 0.00075, 0.0002};
    const char *svg = strstr(report(&r, NULL), "aria-label=\"accuracy over confidence\"");
    assert_non_null(svg);
    for (const char *s = svg; (s = strstr(s, "<text class=\"tick\" x=\"")); s++)
        if (strstr(s, ">100 %<") == strchr(s, '>') &&
            sscanf(s, "<text class=\"tick\" x=\"%lf\" y=\"%*f\" text-anchor=\"mid", &at) == 1)
            assert_true(at + 2.5 * 7 <= 520);
    const sfp__plot p = {.id = "p",
                         .title = "learning rate",
                         .across = "epochs",
                         .buckets = 9,
                         .unit = "",
                         .line = NAN,
                         .count = 1,
                         .series = {{.count = 3, .x = x, .y = y, .color = "--blue"}}};
    assert_true(sfp__plot_write(&plot, &p));
    for (const char *s = plot.s; (s = strstr(s, "text-anchor=\"end\">0.000")); s++) {
        const char *tick = s;
        while (*tick != '<')
            tick--;
        assert_int_equal(sscanf(tick, "<text class=\"tick\" x=\"%lf\"", &at), 1);
        width = 7 * (double)strcspn(strchr(s, '>') + 1, "<");
        assert_true(at >= width);
    }
}

TEST(time_of_learning_is_named_by_what_was_learned)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 2);
    r.seconds.train = 2;
    r.samples.trained = 50;
    HOLDS(report(&r, NULL), "</i>train <b>2 s");
    r.samples.closed_form = 50;
    HOLDS(report(&r, NULL), "</i>closed form <b>2 s");
}

TEST(a_single_confusion_is_called_once)
{
    OWNED_BY(sfp__result_done) sfp_result r = result_make(1, 4);
    r.confusion[1 * 4 + 2] = 1;
    char *text = report(&r, NULL);
    HOLDS(text, "<b>class 3</b> predicted as <b>class 0</b> 10 times (10.0 %)",
          "<b>class 1</b> predicted as <b>class 2</b> once (1.0 %)");
    assert_null(strstr(text, " 1 times"));
}

TEST(numbers_are_written_in_their_shortest_form)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    const double x[] = {0.1, 1.0 / 3, 5e-324, -0.0, 1e22, NAN, INFINITY};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        sfp__json_exact(&(sfp__json){.text = &t}, NULL, x[i]);
        sfp__text_put(&t, " ");
    }
    sfp__json_exact_float(&(sfp__json){.text = &t}, NULL, 0.1f);
    sfp__text_put(&t, " ");
    sfp__json_exact_float(&(sfp__json){.text = &t}, NULL, 16777217.0f);
    assert_string_equal(t.s, "0.1 0.3333333333333333 4.94065645841247e-324 -0 1e+22 null null 0.1 16777216");
    t.length = 0;
    sfp__put_html_cut(&t, "\xc3\xa9\xc3\xa9\xc3\xa9<", 4);
    sfp__text_put(&t, " ");
    sfp__put_html_cut(&t, "\xc3\xa9\xc3\xa9\xc3\xa9<", 3);
    assert_string_equal(t.s, "\xc3\xa9\xc3\xa9\xc3\xa9&lt; \xc3\xa9\xc3\xa9\xe2\x80\xa6");
}
