/* Option tables: parsing, typing, ranges, sources and suggestions. */
#include "base/settings.h"
#include "cli/command.h"

#include "test.h"

static const char *animal(int i)
{
    static const char *const names[] = {"ape", "bee", NULL};
    return names[i];
}

static const sfp__opt table[] = {
    SFP__ROW_GROUP("Sizes"),
    SFP__ROW_INT("batch-size", "B", "20", 1, 1000, "Samples a batch."),
    SFP__ROW_REAL("sigma", "R", "0.5", 0.0, 1.0, "Ratio."),
    SFP__ROW_STRING("out", "DIR", NULL, "Directory."),
    SFP__ROW_CHOICE("clock", "paper|virtual|real|off", "off", "Clock."),
    SFP__ROW_CHOICE("drift", "off|ph", NULL, "No default."),
    SFP__ROW_FLAG("weighted", "Flag."),
    SFP__ROW_INT("seed", "N", "0", 0, INT64_MAX, "Seed."),
    SFP__ROW_GROUP("Beings"),
    {.name = "animal", .type = SFP__OPT_STRING, .arg = "NAME", .help = "Being.", .word = animal},
};
#define ROWS (sizeof table / sizeof *table)

static sfp__args args;

static void set_up(void)
{
    memset(&err, 0, sizeof err);
    MUST(sfp__args_init(&args, "test", table, ROWS, &err));
}

static void tear_down(void)
{
    sfp__args_done(&args);
}

AROUND_EACH(set_up, tear_down)

static sfp_status parse(int argc, const char **argv)
{
    return sfp__args_parse(&args, argc, (char **)(void *)argv, &err);
}
#define PARSE(...) parse((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})

/* Checks that an option refuses these values; the list ends with NULL. */
static void all_bad(const char *name, const char *const *values)
{
    for (; *values; values++)
        if (PARSE(name, *values) != SFP_EINVAL)
            fail_msg("%s takes '%s'", name, *values);
}
#define ALL_BAD(name, ...) all_bad(name, (const char *const[]){__VA_ARGS__, NULL})

TEST(defaults_are_those_of_the_table)
{
    assert_int_equal(sfp__args_int(&args, "batch-size"), 20);
    assert_true(sfp__args_real(&args, "sigma") == 0.5);
    assert_null(sfp__args_string(&args, "out"));
    assert_int_equal(sfp__args_choice(&args, "clock"), 3);
    assert_int_equal(sfp__args_choice(&args, "drift"), -1);
    assert_false(sfp__args_flag(&args, "weighted"));
    assert_int_equal(sfp__args_rank(&args, "sigma"), SFP__RANK_DEFAULT);
    assert_int_equal(sfp__args_rank(&args, "out"), SFP__RANK_UNSET);
}

TEST(both_spellings_of_a_value_work)
{
    MUST(PARSE("--batch-size", "7", "--sigma=0.25", "--clock", "real", "--weighted", "--out=x=y"));
    assert_int_equal(sfp__args_int(&args, "batch-size"), 7);
    assert_true(sfp__args_real(&args, "sigma") == 0.25);
    assert_int_equal(sfp__args_choice(&args, "clock"), 2);
    assert_true(sfp__args_flag(&args, "weighted"));
    assert_string_equal(sfp__args_string(&args, "out"), "x=y");
    assert_string_equal(sfp__args_text(&args, "sigma"), "0.25");
}

TEST(operands_and_options_mix)
{
    MUST(PARSE("a", "--weighted", "-", "--", "--sigma"));
    assert_int_equal(args.operand_count, 3);
    assert_string_equal(args.operands[0], "a");
    assert_string_equal(args.operands[1], "-");
    assert_string_equal(args.operands[2], "--sigma");
}

TEST(a_flag_can_be_turned_off)
{
    MUST(sfp__args_set(&args, "weighted", "true", SFP__RANK_FILE, "x.yaml:1: weighted", &err));
    assert_true(sfp__args_flag(&args, "weighted"));
    MUST(PARSE("--no-weighted"));
    assert_false(sfp__args_flag(&args, "weighted"));
}

TEST(numbers_are_strict)
{
    ALL_BAD("--seed", "", " 1", "1 ", "0x10", "1.5", "--1", "+", "1e19", "9223372036854775808", "nan");
    MUST(PARSE("--seed", "1e2"));
    assert_int_equal(sfp__args_int(&args, "seed"), 100);
    MUST(PARSE("--seed", "9223372036854775807"));
    assert_true(sfp__args_int(&args, "seed") == INT64_MAX);
    ALL_BAD("--sigma", "", "nan", "inf", "0x1p-1", "1e999", ".", "0.5.", " 0.5", "0,5");
    MUST(PARSE("--sigma", "1e-400")); /* a number too small for a double is 0, not an error */
}

TEST(ranges_hold_at_both_ends)
{
    MUST(PARSE("--batch-size", "1"));
    MUST(PARSE("--batch-size", "1000"));
    ALL_BAD("--batch-size", "0", "1001");
    MUST(PARSE("--sigma", "1"));
    ALL_BAD("--sigma", "1.0000001");
}

TEST(choices_are_whole_words)
{
    ALL_BAD("--clock", "", "pap", "paper|virtual", "PAPER", "of");
    MUST(PARSE("--clock", "paper"));
    assert_int_equal(sfp__args_choice(&args, "clock"), 0);
}

TEST(a_very_long_option_is_refused)
{
    char text[5000] = "--";
    memset(text + 2, 'a', sizeof text - 3);
    assert_int_equal(PARSE(text), SFP_EINVAL);
}

TEST(the_command_line_beats_a_file_in_any_order)
{
    MUST(PARSE("--sigma", "0.1"));
    MUST(sfp__args_set(&args, "sigma", "0.9", SFP__RANK_FILE, "run.yaml:3: sigma", &err));
    assert_true(sfp__args_real(&args, "sigma") == 0.1);
    MUST(sfp__args_set(&args, "batch_size", "3", SFP__RANK_PRESET, "preset", &err));
    MUST(sfp__args_set(&args, "batch_size", "4", SFP__RANK_FILE, "run.yaml:4: batch_size", &err));
    MUST(sfp__args_set(&args, "batch_size", "5", SFP__RANK_PRESET, "preset", &err));
    assert_int_equal(sfp__args_int(&args, "batch-size"), 4);
    /* a value that would be ignored is still checked */
    REFUSED_EXACTLY(sfp__args_set(&args, "sigma", "7", SFP__RANK_FILE, "run.yaml:3: sigma", &err), SFP_EINVAL,
                    "run.yaml:3: sigma is '7', expected a number from 0 to 1");
}

TEST(pairs_set_values_by_key)
{
    MUST(sfp__args_set_assignment(&args, "clock=virtual", SFP__RANK_COMMAND_LINE, &err));
    assert_int_equal(sfp__args_choice(&args, "clock"), 1);
    assert_int_equal(sfp__args_set_assignment(&args, "clock", SFP__RANK_COMMAND_LINE, &err), SFP_EINVAL);
    assert_int_equal(sfp__args_set_assignment(&args, "=x", SFP__RANK_COMMAND_LINE, &err), SFP_EINVAL);
    REFUSED_EXACTLY(sfp__args_set_assignment(&args, "clok=off", SFP__RANK_COMMAND_LINE, &err), SFP_EINVAL,
                    "unknown key 'clok', did you mean 'clock'?");
}

/* For values that are checked after parsing. */
TEST(a_message_names_the_origin_of_the_value)
{
    static const struct {
        const char *key, *message, *expected;
        bool about; /* the key is an option of the table */
    } list[] = {
        {"clock", "clock is real, expected off", "--clock is real, expected off", true},
        {"clock", "--clock has no effect with x: y", "--clock has no effect with x: y", true}, /* already names its origin */
        {"weighted", "weighted on, and nothing weighs", "x.yaml:2: weighted on, and nothing weighs", true},
        {"seed", "seed is 0, expected more", "seed is 0, expected more", true}, /* a default has no origin */
        {"pool", "pool is 0, expected more", "pool is 0, expected more", false},
        {"", "clock is a directory", "clock is a directory", false}};
    MUST(PARSE("--clock", "real"));
    MUST(sfp__args_set(&args, "weighted", "yes", SFP__RANK_FILE, "x.yaml:2: weighted", &err));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        (void)sfp__fail_key(&err, list[i].key, SFP_EINVAL, "%s", list[i].message);
        assert_int_equal(sfp__args_add_origin(&args, &err), list[i].about);
        assert_string_equal(err.message, list[i].expected);
        assert_string_equal(err.key, list[i].key);
    }
    (void)sfp__fail_key(&err, "clock", SFP_EINVAL, "clock is real");
    (void)sfp__fail_prefix(&err, SFP_EINVAL, "a.safetensors"); /* the error is then about the file */
    assert_false(sfp__args_add_origin(&args, &err));
    assert_string_equal(err.message, "a.safetensors: clock is real");
}

static void all_given(bool given)
{
    static const char *const keys[] = {"batch-size", "sigma", "out", "clock", "drift", "weighted", "animal"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(sfp__args_given(&args, keys[i]), given);
}

TEST(an_option_is_given_if_its_value_is_not_the_default)
{
    all_given(false);
    MUST(sfp__args_set(&args, "batch_size", "020", SFP__RANK_FILE, "x.yaml:1: batch_size", &err));
    MUST(PARSE("--sigma=.50", "--clock=off", "--no-weighted"));
    all_given(false);
    MUST(sfp__args_set(&args, "drift", "ph", SFP__RANK_PRESET, "preset", &err));
    assert_false(sfp__args_given(&args, "drift"));
    MUST(sfp__args_set(&args, "batch_size", "3", SFP__RANK_FILE, "x.yaml:1: batch_size", &err));
    MUST(PARSE("--sigma=.6", "--out=x", "--clock=paper", "--drift=off", "--weighted", "--animal=ape"));
    all_given(true);
    assert_string_equal(sfp__args_value(&args, "weighted"), "on");
}

TEST(options_without_effect_are_refused)
{
    static const sfp__no_effect_rule rules[] = {
        {"drift sigma", "out", "out {out}", "a"},
        {"sigma", "clock=real|off&weighted!=on", "clock {clock}, planet {planet}", "b"},
        {"sigma", "planet!=mars", "no planet", "c"}, /* the fact is unknown, so the rule does not apply */
        {"drift", "!out&batch-size>=3", "batch-size {batch-size}", "d"}};
    static const sfp__fact facts[] = {{"clock", "real"}, {"planet", NULL}};
    const size_t n = sizeof rules / sizeof *rules;
    MUST(sfp__args_check_no_effect(&args, n, rules, 2, facts, &err)); /* no option is set */
    MUST(sfp__args_set(&args, "sigma", ".7", SFP__RANK_FILE, "x.yaml:1: sigma", &err));
    REFUSED_EXACTLY(sfp__args_check_no_effect(&args, n, rules, 2, facts, &err), SFP_EINVAL,
                    "x.yaml:1: sigma has no effect with clock real, planet from the dataset: b");
    assert_string_equal(err.key, "sigma");
    MUST(PARSE("--weighted", "--drift=ph"));
    REFUSED_EXACTLY(sfp__args_check_no_effect(&args, n, rules, 2, facts, &err), SFP_EINVAL,
                    "--drift has no effect with batch-size 20: d");
    MUST(PARSE("--batch-size=2"));
    MUST(sfp__args_check_no_effect(&args, n, rules, 2, facts, &err));
    MUST(PARSE("--out=here"));
    REFUSED_EXACTLY(sfp__args_check_no_effect(&args, n, rules, 2, facts, &err), SFP_EINVAL,
                    "x.yaml:1: sigma has no effect with out here: a"); /* the first in the table */
}

TEST(numbers_are_compared_by_value)
{
    assert_true(sfp__same_number("0.5", ".50") && sfp__same_number("1e3", "1000") && sfp__same_number("-0", "0"));
    assert_false(sfp__same_number("0.5", "0.51") || sfp__same_number("max", "max") || sfp__same_number("", ""));
    assert_false(sfp__same_number("9007199254740993", "9007199254740992")); /* equal as doubles */
}

/* Checks of the tables that the parser does not make: duplicate names, invalid defaults, missing texts. */
TEST(every_command_has_a_sound_table)
{
    for (size_t i = 0; sfp__commands[i]; i++) {
        const sfp__command *c = sfp__commands[i];
        sfp__args a;
        size_t count;
        const sfp__opt *opts = sfp__command_options(c, &count);
        assert_non_null(c->summary);
        assert_non_null(c->run);
        assert_true(c->max_operands == 0 || c->operands);
        MUST(sfp__args_init(&a, c->name, opts, count, &err));
        sfp__args_done(&a);
        for (size_t k = 0; k < count; k++) {
            const sfp__opt *o = &opts[k];
            assert_non_null(o->help);
            if (o->type == SFP__OPT_GROUP) {
                assert_true(k + 1 < count && opts[k + 1].type != SFP__OPT_GROUP); /* a heading has options below it */
                assert_true(opts[0].type == SFP__OPT_GROUP);                      /* no option is above the first heading */
                continue;
            }
            assert_true(o->name[0] && (!o->word || o->word(0)));
            assert_true(o->help[strlen(o->help) - 1] == '.');
            assert_true(o->type == SFP__OPT_FLAG || o->arg);
            assert_true(o->type != SFP__OPT_INT || o->min < o->max);
            assert_true(o->type != SFP__OPT_REAL || o->min < o->max);
            assert_true(strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(o->name));
            for (size_t m = 0; m < k; m++)
                assert_string_not_equal(o->name, opts[m].name);
        }
    }
}

TEST(names_resemble_each_other_if_one_may_be_a_typing_error)
{
    static const char *const alike[][2] = {
        {"C1 ", "c1"}, {"tea pot", "Teapot"}, {"bowl", "bolw"}, {"plate", "plates"}, {"mug1", "MUG 1"}};
    static const char *const different[][2] = {
        {"c1", "c2"}, {"cup", "cap"}, {"shelf1", "shelf2"}, {"cups1", "cups12"}, {"bowl", "plate"}};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        assert_true(sfp__resembles(alike[i][0], alike[i][1]));
    for (size_t i = 0; i < sizeof different / sizeof *different; i++)
        assert_false(sfp__resembles(different[i][0], different[i][1]));
    char name[SFP__KEY_LENGTH_MAX + 2] = {0};
    memset(name, 'a', sizeof name - 1);
    assert_false(sfp__resembles(name, name)); /* too long to be compared */
}
