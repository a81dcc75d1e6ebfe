#include "io/config.h"

#include <sys/stat.h>

#include "temp_directory.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

static sfp__model_config parse(const char *text)
{
    sfp__model_config c;
    if (sfp__model_config_parse("c.json", text, strlen(text), &c, &err) != SFP_OK)
        fail_msg("%s: %s", text, err.message);
    return c;
}

static void check_refused(const char *text, sfp_status status, const char *message)
{
    sfp__model_config c, untouched;
    memset(&c, 0x5a, sizeof c);
    untouched = c;
    REFUSED_AS(text, sfp__model_config_parse("c.json", text, strlen(text), &c, &err), status, message);
    assert_memory_equal(&c, &untouched, sizeof c);
}

TEST(this_projects_keys_are_read)
{
    OWNED_BY(sfp__model_config_done)
    OWNED_BY(sfp__model_config_done)
    sfp__model_config c =
        parse("{\"architecture\":\"vit\",\"img_size\":32,\"patch_size\":8,\"num_heads\":4,\"mean\":[0,0.5,0],"
              "\"std\":[1,1,2.0],\"ln_eps\":1e-06,\"layers\":[0,1],\"activation\":\"gelu\",\"class_names\":[\"a\",\"b\"]}");
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.img_size, 32);
    assert_int_equal(c.patch_size, 8);
    assert_true(c.ln_eps == 1e-6f && c.has_mean && c.has_std && c.mean[1] == 0.5f && c.std[2] == 2.0f);
    assert_string_equal(c.activation, "gelu");
    assert_int_equal(c.class_count, 2);
    assert_string_equal(c.class_names[1], "b");
}

TEST(timms_keys_are_read)
{
    OWNED_BY(sfp__model_config_done)
    OWNED_BY(sfp__model_config_done)
    sfp__model_config c =
        parse("{\"architecture\":\"vit_base_patch16_224\",\"num_classes\":2,\"num_features\":768,\"pretrained_cfg\":"
              "{\"tag\":\"x\",\"input_size\":[3,384,384],\"mean\":[0.5,0.5,0.5],\"std\":[0.5,0.5,0.5],"
              "\"label_names\":[\"cat\",\"dog\"],\"pool_size\":null}}");
    assert_int_equal(c.img_size, 384);
    assert_int_equal(c.heads, 0);
    assert_true(c.has_mean && c.has_std && c.std[0] == 0.5f && c.ln_eps == 0);
    assert_string_equal(c.class_names[0], "cat");
    assert_string_equal(c.activation, "");
}

TEST(hugging_faces_keys_are_read)
{
    OWNED_BY(sfp__model_config_done)
    OWNED_BY(sfp__model_config_done)
    sfp__model_config c =
        parse("{\"model_type\":\"vit\",\"num_attention_heads\":12,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\","
              "\"image_size\":224,\"patch_size\":16,\"image_mean\":[0.1,0.2,0.3],\"image_std\":[1,2,3],"
              "\"id2label\":{\"1\":\"dog\",\"0\":\"cat\",\"2\":\"\\u00e9\"}}");
    assert_int_equal(c.heads, 12);
    assert_int_equal(c.img_size, 224);
    assert_true(c.ln_eps == 1e-12f && c.mean[2] == 0.3f && c.std[1] == 2.0f);
    assert_int_equal(c.class_count, 3);
    assert_string_equal(c.class_names[0], "cat");
    assert_string_equal(c.class_names[1], "dog");
    assert_string_equal(c.class_names[2], "\xc3\xa9");
}

TEST(clips_image_tower_is_read)
{
    OWNED_BY(sfp__model_config_done)
    OWNED_BY(sfp__model_config_done)
    sfp__model_config c = parse("{\"text_config\":{\"num_attention_heads\":8},\"vision_config\":{\"num_attention_heads\":12,"
                                "\"hidden_act\":\"quick_gelu\",\"image_size\":[224,224],\"patch_size\":32}}");
    assert_int_equal(c.heads, 12);
    assert_int_equal(c.img_size, 224);
    assert_int_equal(c.patch_size, 32);
    assert_string_equal(c.activation, "quick_gelu");
}

TEST(absent_and_null_keys_stay_unset)
{
    OWNED_BY(sfp__model_config_done)
    sfp__model_config c = parse("{\"num_heads\":null,\"mean\":null,\"pretrained_cfg\":null,\"id2label\":{},\"other\":[1]}");
    sfp__model_config unset = {0};
    assert_memory_equal(&c, &unset, sizeof c);
    sfp__model_config_done(NULL);
}

TEST(known_keys_of_a_wrong_kind_are_named)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"num_heads\":\"12\"}", "c.json: 'num_heads' is not an integer, expected one in 1..4096"},
        {"{\"num_heads\":12.0}", "'num_heads' is not an integer"},
        {"{\"num_attention_heads\":0}", "'num_attention_heads' is 0, expected an integer in 1..4096"},
        {"{\"num_heads\":-3}", "'num_heads' is -3"},
        {"{\"num_heads\":4294967297}", "'num_heads' is 4294967297"},
        {"{\"img_size\":100000}", "'img_size' is 100000, expected an integer in 1..65536"},
        {"{\"input_size\":[3,224,256]}", "'input_size' is not square"},
        {"{\"input_size\":[]}", "'input_size' is not square"},
        {"{\"input_size\":[\"a\",\"a\"]}", "'input_size' is not an integer"},
        {"{\"patch_size\":true}", "'patch_size' is not an integer"},
        {"{\"mean\":0.5}", "'mean' is not an array of 3 numbers"},
        {"{\"mean\":[1,2]}", "'mean' is not an array of 3 numbers"},
        {"{\"image_mean\":[1,2,\"3\"]}", "'image_mean[2]' is 0, expected a number"},
        {"{\"mean\":[1,2,1e300]}", "'mean[2]' is 1e+300, expected a number"},
        {"{\"std\":[1,0,1]}", "'std[1]' is 0, expected a positive number"},
        {"{\"pretrained_cfg\":{\"std\":[1,1,-1]}}", "'std[2]' is -1, expected a positive number"},
        {"{\"ln_eps\":0}", "'ln_eps' is 0, expected a number in (0, 1]"},
        {"{\"layer_norm_eps\":2}", "'layer_norm_eps' is 2"},
        {"{\"ln_eps\":\"1e-6\"}", "'ln_eps' is 0, expected a number"},
        {"{\"hidden_act\":3}", "'hidden_act' is not a string"},
        {"{\"pretrained_cfg\":\"x\"}", "'pretrained_cfg' is not an object"},
        {"{\"class_names\":\"x\"}", "'class_names' is neither an array nor an object, expected names"},
        {"{\"class_names\":[\"a\",3]}", "'class_names' has a name of class 1 that is not a string"},
        {"{\"id2label\":{\"0\":3}}", "'id2label' has a name of class 0 that is not a string"},
        {"{\"id2label\":{\"0\":\"a\",\"2\":\"b\"}}", "'id2label' has key '2', expected each of 0..1 once"},
        {"{\"id2label\":{\"0\":\"a\",\"00\":\"b\"}}", "expected each of 0..1 once"},
        {"{\"id2label\":{\"-1\":\"a\"}}", "'id2label' has key '-1'"},
        {"{\"id2label\":{\"0x\":\"a\"}}", "'id2label' has key '0x'"},
        {"{\"id2label\":{\"99999999999999999999999\":\"a\"}}", "'id2label' has key '9999"},
        {"[]", "c.json: not a JSON object"},
        {"{\"a\":1,\"a\":2}", "duplicate key"},
        {"{\n\"a\":}", "c.json: line 2, column"},
        {"", "c.json: line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].text, SFP_EFORMAT, cases[i].message);
    check_refused("{\"hidden_act\":\"gelu_new\\u0007\"}", SFP_EUNSUPPORTED,
                  "'hidden_act' is 'gelu_new\\x07', expected gelu or quick_gelu");
}

TEST(the_file_beside_the_weights_is_found)
{
    sfp__model_config c = {0};
    const char *found = "";
    const char *weights = in_directory("net.v1.safetensors");
    MUST(sfp__model_config_find(weights, NULL, &c, &found, &err));
    assert_null(found);
    assert_int_equal(strlen(err.message), 0);
    put_text("config.json", "{\"num_heads\":3}");
    MUST(sfp__model_config_find(weights, NULL, &c, &found, &err));
    assert_true(found && c.heads == 3);
    put_text("net.v1.json", "{\"num_heads\":6}");
    MUST(sfp__model_config_find(weights, NULL, &c, &found, &err));
    assert_true(found && c.heads == 6);
    put_text("net.v1.json", "{");
    REFUSED(sfp__model_config_find(weights, NULL, &c, &found, &err), SFP_EFORMAT, "net.v1.json: line 1");
    assert_int_equal(c.heads, 6);
    (void)unlink(in_directory("net.v1.json"));
    assert_int_equal(mkdir(in_directory("net.v1.json"), 0700), 0);
    REFUSED(sfp__model_config_find(weights, NULL, &c, &found, &err), SFP_EINVAL, "is a directory");
}

TEST(embedded_config_ranks_between_own_file_and_directory_config)
{
    sfp__model_config c = {0};
    const char *from = "", *inside = "{\"num_heads\":4}";
    const char *weights = in_directory("net.safetensors");
    put_text("config.json", "{\"num_heads\":3}");
    MUST(sfp__model_config_find(weights, inside, &c, &from, &err));
    assert_true(c.heads == 4 && strstr(from, "metadata"));
    REFUSED(sfp__model_config_find(weights, "{", &c, &from, &err), SFP_EFORMAT, "net.safetensors: line 1");
    put_text("net.json", "{\"num_heads\":6}");
    MUST(sfp__model_config_find(weights, inside, &c, &from, &err));
    assert_true(c.heads == 6 && strstr(from, "beside"));
}

TEST(mean_and_std_may_be_in_a_separate_file)
{
    sfp__model_config c = {0};
    const char *from = "";
    const char *weights = in_directory("model.safetensors");
    put_text("preprocessor_config.json", "{\"image_mean\":[0.5,0.4,0.3],\"image_std\":[0.1,0.2,0.3],\"size\":{\"height\":224}}");
    MUST(sfp__model_config_find(weights, NULL, &c, &from, &err));
    assert_null(from); /* without the model's keys it is not the configuration */
    put_text("config.json", "{\"num_attention_heads\":3,\"image_std\":[1,1,1]}");
    MUST(sfp__model_config_find(weights, NULL, &c, &from, &err));
    assert_true(c.heads == 3 && c.has_mean && c.mean[1] == 0.4f && c.has_std && c.std[0] == 1);
    assert_non_null(strstr(from, "preprocessor_config.json"));
    put_text("preprocessor_config.json", "{\"image_mean\":[0.5]}");
    REFUSED(sfp__model_config_find(weights, NULL, &c, &from, &err), SFP_EFORMAT, "preprocessor_config.json: 'image_mean'");
}

TEST(names_without_directory_or_extension_work)
{
    sfp__model_config c = {0};
    const char *found = "";
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(directory), 0);
    put_text("net.json", "{\"num_heads\":5}");
    MUST(sfp__model_config_find("net", NULL, &c, &found, NULL));
    assert_true(found && c.heads == 5);
    MUST(sfp__model_config_find(".hidden", NULL, &c, &found, NULL));
    assert_null(found);
    assert_int_equal(chdir(old), 0);
}
