/* Names of classes and files on a terminal: they come from outside and may hold anything. */
#ifndef TOOLS_NAMES_H
#define TOOLS_NAMES_H

enum { SHOWN_MAX = 12 };
/* What is shown of the letter at *text, which moves past it; returns the columns that it takes. */
int next_shown(const char **text, char shown[SHOWN_MAX]);
/* Columns that print_name takes for the text: wide letters take two, combining marks none, escaped bytes four or six.
 */
int name_columns(const char *text);
/* Print the text, then spaces up to `width` columns. Control characters, marks that reorder or hide text and bytes that
 * are no UTF-8 are printed escaped ("\x1b"), so that no name moves the cursor or colours the screen. */
void print_name(const char *text, int width);

#endif
