/* Forms with files, as browsers and curl make them and as nobody should. */
#include "serve/form.h"
#include "support_test.h"

#define DISPOSITION "Content-Disposition: form-data; name=\"a\"; filename="

/* ---- the boundary ---- */

static void boundary(void **state)
{
    static const struct {
        const char *type, *boundary; /* NULL: there is none */
    } rows[] = {{"multipart/form-data; boundary=xyz", "xyz"},
                {"Multipart/Form-Data;charset=utf-8;BOUNDARY=xyz;more=1", "xyz"},
                {"multipart/form-data; boundary=\"x; y\"", "x; y"},
                {"multipart/form-data; other=\"boundary=a\"; boundary=b", "b"},
                {"multipart/form-data; boundary=\"\"", NULL},
                {"multipart/form-data; boundary", NULL},
                {"multipart/form-data; xboundary=a", NULL},
                {"multipart/form-data", NULL},
                {"multipart/mixed; boundary=xyz", NULL}};
    char boundary[CVY_FORM_BOUNDARY], type[2000];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(cvy_form_boundary(rows[i].type, boundary), rows[i].boundary != NULL);
        if (rows[i].boundary)
            assert_string_equal(boundary, rows[i].boundary);
    }
    for (int length = CVY_FORM_BOUNDARY - 1; length <= CVY_FORM_BOUNDARY; length++) {
        snprintf(type, sizeof type, "multipart/form-data; boundary=%0*d", length, 7);
        assert_int_equal(cvy_form_boundary(type, boundary), length < CVY_FORM_BOUNDARY);
    }
    snprintf(type, sizeof type, "multipart/form-data; other=%01500d; boundary=a", 7);
    assert_false(cvy_form_boundary(type, boundary));
}

/* ---- files ---- */

/* "name=bytes|name=bytes|", or the sentence. In memory that ends where the form does. */
static const char *read_form(const char *text, int most)
{
    static char found[1000];
    const size_t size = strlen(text);
    char *body = malloc(size ? size : 1);
    struct cvy_form form;
    size_t used = 0;

    assert_non_null(body);
    memcpy(body, text, size);
    found[0] = '\0';
    if (cvy_form_read(&form, "XX", body, size, most) != CVY_OK)
        snprintf(found, sizeof found, "%s", cvy_error());
    else
        for (int i = 0; i < form.count; i++)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s=%.*s|", form.parts[i].name,
                                     (int)form.parts[i].size, form.parts[i].data);
    cvy_form_release(&form);
    free(body);
    return found;
}

static void files(void **state)
{
    static const struct {
        const char *form, *found;
    } rows[] = {
        {"", ""},
        {"--XX--\r\n", ""},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes\r\n--XX--\r\n", "f=bytes|"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes\r\n--XX--", "f=bytes|"},
        {"text\r\n--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes\r\n--XX--\r\nmore text", "f=bytes|"},
        /* Two of one name, one of them without a byte; spaces behind a boundary. */
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\n\r\n--XX \t\r\n" DISPOSITION "\"f\"\r\n\r\nb\r\n--XX--", "f=|f=b|"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\n--XX--", "f=|"},
        /* What looks like a boundary or the end of a line, and is none. */
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\n\r\n\r\r\n--XXY\r\n--X\n--XX--\r\r\n--XX--",
         "f=\r\n\r\r\n--XXY\r\n--X\n--XX--\r|"},
        /* Names in quotes and without, of other fields and in other places. */
        {"--XX\r\ncontent-DISPOSITION:form-data;filename=f;name=a\r\n\r\nb\r\n--XX--", "f=b|"},
        {"--XX\r\n" DISPOSITION "\"a;\\\"b\\\\c\\d\"; x=\"filename=z\"\r\n\r\nb\r\n--XX--", "a;\"b\\c\\d=b|"},
        {"--XX\r\nContent-Type: x; filename=no\r\n" DISPOSITION "\"f\"\r\nX: y\r\n\r\nb\r\n--XX--", "f=b|"},
        {"--XX\r\n" DISPOSITION "\"f\r\n\r\nb\r\n--XX--", "f=b|"},
        {"--XX\r\n" DISPOSITION "\"\"\r\n\r\nb\r\n--XX--", "=b|"},
        {"--XX\r\n" DISPOSITION "\r\n\r\nb\r\n--XX--", "=b|"},
        /* No files. */
        {"--XX\r\nContent-Disposition: form-data; name=\"topk\"\r\n\r\n5\r\n--XX--",
         "field \"topk\" of the form is no file: options stand in the address"},
        {"--XX\r\nContent-Type: image/jpeg\r\n\r\n5\r\n--XX--",
         "field without a name of the form is no file: options stand in the address"},
        {"--XX\r\n\r\n5\r\n--XX--", "field without a name of the form is no file: options stand in the address"},
        /* No forms. */
        {"bytes", "the form has no part between the boundaries of which its Content-Type tells"},
        {"--XX", "the form has no part between the boundaries of which its Content-Type tells"},
        {"--XY\r\n\r\nb\r\n--XY--", "the form has no part between the boundaries of which its Content-Type tells"},
        {"--XX\r\n", "the form ends within a part"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n", "the form ends within a part"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes", "the form ends within a part"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes\r\n--XX", "the form ends within a part"},
        {"--XX\r\n" DISPOSITION "\"f\"\r\n\r\nbytes\r\n--XX\r\n", "the form ends within a part"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(read_form(rows[i].form, 8), rows[i].found);
}

static void most(void **state)
{
    char form[2000] = "";

    (void)state;
    for (int i = 0; i < 9; i++) {
        char whole[2100];

        snprintf(whole, sizeof whole, "%s--XX--", form);
        assert_int_equal(strlen(read_form(whole, 8)), 3 * i);
        strcat(form, "--XX\r\n" DISPOSITION "f\r\n\r\n\r\n");
    }
    strcat(form, "--XX--");
    assert_string_equal(read_form(form, 8), "a form has at most 8 images");
}

RUN_TESTS(NULL, NULL, TEST(boundary), TEST(files), TEST(most))
