/* What the files of ops/ share: checks used by shape rules, and the rows' functions for the table in table.c. */
#ifndef CVY_OPS_RULES_H
#define CVY_OPS_RULES_H

#include "base/error.h"
#include "ops/ops.h"

/* Whether `x` is a value of a float type with the given rank; records "<op> needs ..." otherwise. */
bool cvy_rule_float(struct cvy_graph *graph, const char *op, const char *what, cvy_val x, int32_t rank);
/* Whether `value` has this shape and the type of `like`. */
bool cvy_rule_same(struct cvy_graph *graph, const char *op, const char *what, cvy_val value, struct cvy_shape shape,
                   cvy_val like);
/* Output extent of a window that slides over one padded dimension; 0 (and the error recorded) when it does not fit or
 * an argument is impossible. */
int64_t cvy_rule_window(struct cvy_graph *graph, const char *op, int64_t input, int32_t kernel, int32_t stride,
                        int32_t dilation, int32_t pad_before, int32_t pad_after);
/* Adds a node with one output; returns that output. */
cvy_val cvy_rule_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                      const cvy_val *in, struct cvy_shape shape, enum cvy_dtype dtype);
/* The same with the shape and type of an existing value: what a gradient looks like. */
cvy_val cvy_rule_gradient_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                               const cvy_val *in, cvy_val like);
/* Whether `mix` is absent, or pairs the samples of a batch of `batch` with coefficients of `dtype`. */
bool cvy_rule_mix(struct cvy_graph *graph, const char *op, struct cvy_mix_values mix, int64_t batch,
                  enum cvy_dtype dtype);
/* dout where y > 0, of ReLU6 where 0 < y < 6: the gradient before an activation whose output is y; dout itself without
 * one. */
cvy_val cvy_activation_mask(struct cvy_graph *graph, enum cvy_activation activation, cvy_val y, cvy_val dout);
/* Elements of a value for one sample; 0 for CVY_NONE. */
double cvy_rule_elements(const struct cvy_graph *graph, cvy_val value);
/* The gradient of y = f(x), element by element: the op's `backward` on the output or the input, and dy. */
void cvy_elementwise_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                              const bool *need, cvy_val *din);

/* cvy_<op>_gradient and cvy_<op>_flops: those exist that a row of graph/ops.def names. */
#define CVY_OP(ID, name, ...)                                                                                          \
    void cvy_##name##_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,              \
                               const bool *need, cvy_val *din);                                                        \
    double cvy_##name##_flops(const struct cvy_graph *graph, const struct cvy_node *node);
#include "graph/ops.def"

#endif
