#include "names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The letter at *text, which moves past it; a byte that begins none is returned as *bad. */
static uint32_t next_letter(const unsigned char **text, bool *bad)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = *text, first = *at;
    const int size = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF8 ? 4 : 0;
    uint32_t letter = size == 1 ? first : first & (0x7FU >> size);
    int i = 1;

    while (i < size && (at[i] & 0xC0) == 0x80)
        letter = letter << 6 | (at[i++] & 0x3F);
    *bad =
        size == 0 || i < size || letter < smallest[size] || letter > 0x10FFFF || (letter >= 0xD800 && letter < 0xE000);
    *text += *bad ? 1 : size;
    return *bad ? first : letter;
}

/* C0 and C1 controls, DEL, and the marks that reorder or hide text on a terminal. */
static bool is_unprintable(uint32_t letter)
{
    return letter < 0x20 || (letter >= 0x7F && letter < 0xA0) || (letter >= 0x200B && letter <= 0x200F) ||
           (letter >= 0x2028 && letter <= 0x202E) || (letter >= 0x2060 && letter <= 0x206F) || letter == 0xFEFF;
}

/* Unicode's East Asian Width (UAX #11), wide and full-width, by its large blocks; combining marks of its first ones. */
static int columns_of(uint32_t letter)
{
    static const struct {
        uint32_t first, last;
        int columns;
    } ranges[] = {{0x0300, 0x036F, 0}, {0x1100, 0x115F, 2},   {0x2E80, 0xA4CF, 2},  {0xAC00, 0xD7A3, 2},
                  {0xF900, 0xFAFF, 2}, {0xFE00, 0xFE0F, 0},   {0xFE30, 0xFE6F, 2},  {0xFF01, 0xFF60, 2},
                  {0xFFE0, 0xFFE6, 2}, {0x1F300, 0x1FAFF, 2}, {0x20000, 0x3FFFD, 2}};

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (letter >= ranges[i].first && letter <= ranges[i].last)
            return ranges[i].columns;
    }
    return 1;
}

int next_shown(const char **text, char shown[SHOWN_MAX])
{
    const unsigned char *from = (const unsigned char *)*text, *at = from;
    bool bad;
    const uint32_t letter = next_letter(&at, &bad);

    *text = (const char *)at;
    if (bad || is_unprintable(letter))
        return snprintf(shown, SHOWN_MAX, letter < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)letter);
    memcpy(shown, from, (size_t)(at - from));
    shown[at - from] = '\0';
    return columns_of(letter);
}

/* Columns of the text, which is printed where `out` is not NULL. */
static int walk(const char *text, FILE *out)
{
    char shown[SHOWN_MAX];
    int columns = 0;

    while (*text) {
        columns += next_shown(&text, shown);
        if (out)
            fputs(shown, out);
    }
    return columns;
}

int name_columns(const char *text)
{
    return walk(text, NULL);
}

void print_name(const char *text, int width)
{
    const int columns = walk(text, stdout);

    if (columns < width)
        printf("%*s", width - columns, "");
}
