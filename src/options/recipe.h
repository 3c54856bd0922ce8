/* The recipes of recipes/, embedded at build time (generated table), ended by a row of NULLs. */
#ifndef CVY_OPTIONS_RECIPE_H
#define CVY_OPTIONS_RECIPE_H

struct cvy_recipe {
    const char *name, *file, *text; /* file: of recipes/ without its ending; the text is complete, without headers */
};
extern const struct cvy_recipe cvy_recipes[];

#endif
