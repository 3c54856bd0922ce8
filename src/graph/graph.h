/* A static graph: values and the nodes that compute them. Built through ops/, extended by backward construction,
 * changed by rewrites, then planned. Knows no device.
 *
 * Building: the first error sticks; every later builder call returns CVY_NONE and changes nothing; the caller checks
 * once with cvy_graph_status(). Nodes are stored in an order that respects their inputs. */
#ifndef CVY_GRAPH_GRAPH_H
#define CVY_GRAPH_GRAPH_H

#include "base/memory.h"
#include "convoy/status.h"
#include "graph/op.h"

typedef int32_t cvy_val; /* index of a value; CVY_NONE: no value */
#define CVY_NONE (-1)

enum cvy_param_kind {
    CVY_PARAM_TRAINABLE, /* has a gradient; element of the parameter arena */
    CVY_PARAM_STATE,     /* running statistics: fp32, written by the training step; element of the state arena */
    CVY_PARAM_FROZEN,    /* a weight that training leaves as it is: no gradient; element of the state arena */
    CVY_PARAM_COUNTER    /* int64 scalar such as num_batches_tracked: kept by the host, no value in the graph */
};

enum cvy_init_kind {
    CVY_INIT_ZERO,
    CVY_INIT_ONE,
    CVY_INIT_NORMAL,           /* normal(0, init_scale) */
    CVY_INIT_TRUNCATED_NORMAL, /* normal(0, init_scale), drawn again beyond 2 init_scale */
    CVY_INIT_UNIFORM,          /* uniform(-init_scale, init_scale) */
    CVY_INIT_CONSTANT          /* init_scale */
};

/* A named parameter, in state-dict order. Shared parameters appear once. */
struct cvy_param {
    const char *name; /* torchvision's: "layer1.0.conv2.weight" */
    struct cvy_shape shape;
    enum cvy_param_kind kind;
    enum cvy_init_kind init;
    float init_scale;
    int64_t offset; /* first element in its arena (parameter or state arena); index for counters */
    cvy_val value;  /* CVY_NONE for counters */
    int32_t uses;   /* how often it is used; for a counter: its increment per training step */
};

struct cvy_value {
    struct cvy_shape shape; /* dim[0] may be CVY_BATCH */
    enum cvy_dtype dtype;
    int32_t producer; /* node that computes it; -1 for inputs and parameters */
    int32_t param;    /* index of the parameter; -1 otherwise */
    int32_t input;    /* index of the graph input; -1 otherwise */
};

struct cvy_node {
    enum cvy_op op;
    bool backward;           /* added by backward construction */
    int32_t inputs, outputs; /* slots in use, CVY_NONE holes included */
    cvy_val in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS];
    union cvy_attr attr;
    const char *scope; /* where it was built: "layer1.0.conv2" ("" at the top) */
    const char *note;  /* for `info --plan`: set by a device's rewrite; NULL: none */
};

/* Whether a node has an input of that number. */
static inline bool cvy_node_has(const struct cvy_node *node, int32_t input)
{
    return input < node->inputs && node->in[input] != CVY_NONE;
}

/* An input that the caller of a plan binds. */
struct cvy_graph_input {
    const char *name;
    cvy_val value;
    bool nhwc; /* a 4-d value that the caller stores as N, H, W, C */
};

enum cvy_result_kind {
    CVY_RESULT_NAMED,    /* read by name: "logits", "loss" */
    CVY_RESULT_GRADIENT, /* of parameter `param`: lands in the gradient arena */
    CVY_RESULT_STATE     /* new value of state parameter `param`: lands in the state arena */
};
struct cvy_graph_result {
    enum cvy_result_kind kind;
    const char *name; /* of a named result */
    int32_t param;
    cvy_val value;
};

struct cvy_graph {
    struct cvy_arena arena; /* names and scopes */
    struct cvy_value *values;
    struct cvy_node *nodes;
    struct cvy_param *params;
    struct cvy_graph_input *input_list;
    struct cvy_graph_result *results;
    int32_t value_count, node_count, param_count, input_count, result_count;
    int32_t value_capacity, node_capacity, param_capacity, input_capacity, result_capacity;
    int64_t trainable_elements, state_elements, counters; /* sizes of the arenas */
    char scope[256];
    bool training; /* what the builders make of batch norm */
    /* Prefixes of names, separated by commas: trainable parameters under one of them become frozen (NULL: none).
     * Borrowed while the graph is built. */
    const char *freeze;
    float batch_norm_momentum; /* of every batch norm that is built; 0: its own */
    cvy_status status;
    char message[512]; /* the sentence of the first error */
};

/* ---- life ---- */
void cvy_graph_init(struct cvy_graph *graph, bool training);
void cvy_graph_release(struct cvy_graph *graph);
/* CVY_OK, or the first error with its sentence recorded again. */
CVY_CHECKED cvy_status cvy_graph_status(const struct cvy_graph *graph);
/* Record the first error ("scope: sentence"); returns CVY_NONE. */
cvy_val cvy_graph_fail(struct cvy_graph *graph, cvy_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- building blocks, used by ops/ and models/ ---- */
/* Scopes nest with dots: push "layer1", push "0" -> "layer1.0". */
void cvy_scope_push(struct cvy_graph *graph, const char *name);
void cvy_scope_push_index(struct cvy_graph *graph, int32_t index);
void cvy_scope_pop(struct cvy_graph *graph);

cvy_val cvy_graph_input(struct cvy_graph *graph, const char *name, enum cvy_dtype dtype, struct cvy_shape shape,
                        bool nhwc);
struct cvy_init {
    enum cvy_init_kind kind;
    float scale;
};
/* A parameter named "<scope>.<name>" (or by `name` alone when it starts with '/': "/shared.weight"). Asking again for
 * the same name, shape and kind gives the same value: that is how parameters are shared. */
cvy_val cvy_graph_param(struct cvy_graph *graph, const char *name, enum cvy_param_kind kind, struct cvy_shape shape,
                        struct cvy_init init);
/* Whether `name` is the prefix of `length` bytes or continues from it with a dot: "layer1" holds "layer1.0.bn1.bias",
 * not "layer10.bias". */
bool cvy_name_under(const char *name, const char *prefix, size_t length);
/* Whether training leaves the parameter as it is: frozen weights, and the running statistics that no batch norm
 * updates. In a graph for inference that is every parameter. */
bool cvy_graph_param_fixed(const struct cvy_graph *graph, int32_t param);
/* Adds a node whose shape rule has run: the caller (ops/) gives the outputs' shapes and types (rank -1: the output is
 * absent, CVY_NONE). `attr` may be NULL. Returns the node's index or -1. */
int32_t cvy_graph_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                       const cvy_val *in, int32_t outputs, const struct cvy_shape *shapes,
                       const enum cvy_dtype *dtypes);
void cvy_graph_result(struct cvy_graph *graph, enum cvy_result_kind kind, const char *name, int32_t param,
                      cvy_val value);
/* `x` through a new quantizer: a node FAKE_QUANTIZE under the current scope and its state parameter
 * "<name>.observed" (3), which training updates. */
cvy_val cvy_graph_quantizer(struct cvy_graph *graph, cvy_val x, const char *name,
                            const struct cvy_fake_quantize_attr *attr);
/* The value of a named result, CVY_NONE if there is none. */
cvy_val cvy_graph_find_result(const struct cvy_graph *graph, const char *name);
int32_t cvy_graph_find_param(const struct cvy_graph *graph, const char *name);
static inline const struct cvy_shape *cvy_shape_of(const struct cvy_graph *graph, cvy_val value)
{
    return &graph->values[value].shape;
}
/* How many node inputs and results read the value. */
int32_t cvy_graph_uses(const struct cvy_graph *graph, cvy_val value);
/* Whether the graph can run with this batch size: every tensor's size fits, and no training batch norm is left with one
 * value per channel. CVY_USAGE with the sentence otherwise. */
CVY_CHECKED cvy_status cvy_graph_check_batch(const struct cvy_graph *graph, int64_t batch);

/* ---- what an op tells about itself: a row of graph/ops.def; the table is in ops/ops.h ---- */
/* Sets of inputs or outputs. */
#define CVY_SLOT(i)         (1U << (i))
#define CVY_SLOTS(from, to) ((2U << (to)) - (1U << (from)))
#define CVY_ALL_SLOTS       (~0U)

/* How far the output of a kernel may be from the reference's: relative to the size of what was added up. */
enum cvy_op_check {
    CVY_CHECK_MISSING,
    CVY_CHECK_EXACT,    /* not at all: the op does not round, or rounds once */
    CVY_CHECK_ABSOLUTE, /* a sum of products: relative to what the op gives for the absolute values of its inputs */
    CVY_CHECK_RESULT,   /* nothing cancels: relative to the result */
    CVY_CHECK_FORMULA   /* a formula of the op's own, in backend/check_compare.c */
};

struct cvy_op_range {
    int32_t min, max;
};

struct cvy_op_info {
    const char *name; /* "conv2d_bwd_data" */
    struct cvy_op_range inputs, outputs;
    int32_t elementwise; /* 1, 2: y = f(x), y = f(a, b) element by element (CVY_OP_UNARY, CVY_OP_BINARY); else 0 */
    /* Adds the nodes that compute the gradients of the inputs: dout[i] is the gradient of output i (CVY_NONE: zero),
     * need[i] says whether input i needs one, din[i] receives it (CVY_NONE: zero). NULL: not differentiable. Errors
     * stick in the graph. */
    void (*gradient)(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                     cvy_val *din);
    /* For cvy_elementwise_gradient: the op that makes dx of the output and dy, or of the input and dy. */
    enum cvy_op backward;
    bool backward_reads_input;
    /* Floating-point operations (a multiply-add counts 2) of the node for one sample; for nodes over parameters only,
     * of the node. NULL: element_flops for each element of the first output. */
    double (*flops)(const struct cvy_graph *graph, const struct cvy_node *node);
    double element_flops;
    /* In a network of 16-bit floats: bit i says that input (output) i is f32 all the same. */
    uint32_t f32_inputs, f32_outputs;
    /* Integers in any network. Images and targets may be integers: u8 and i32. */
    uint32_t i32_inputs, i32_outputs, u8_inputs, u8_outputs;
    bool int8;    /* of integer inference: only devices with cvy_device.int8 see it */
    bool closed;  /* of a batch norm in closed form: only devices that ask for one (cvy_backend.rewrite) see it */
    bool follows; /* computes in the type of its inputs, in 16 bits where one of them has 16 */
    /* The input whose memory the first output may take over: kernels read an element before they write it, in the same
     * place, and nothing of that input afterwards. All kernels of elementwise ops are so, and those of the reference.
     */
    uint32_t in_place;
    enum cvy_op_check check;
    int32_t roundings; /* after the sum, in units of the type; 0: 8, which is enough for an exponential, too */
};

/* ---- backward construction ---- */
/* Appends the nodes that compute d(loss)/d(parameter) for every trainable parameter that the loss depends on and
 * registers each as a CVY_RESULT_GRADIENT, in the order in which they become ready. `seed` is a scalar value, the
 * gradient of the loss (1, or the loss scale). Parameters that do not reach the loss get no gradient. `ops` is the
 * table of CVY_OP_COUNT rows. */
void cvy_graph_backward(struct cvy_graph *graph, const struct cvy_op_info *ops, cvy_val loss, cvy_val seed);

/* ---- rewrites (rewrite.c, rewrite_quantize.c, rewrite_fuse.c, rewrite_recompute.c, rewrite_statistics.c,
 * rewrite_patterns.c, rewrite_norms.c); each keeps the results' meaning and leaves a valid order ---- */
/* The forward pass of training or inference, before anything is fused: what convolutions and linear layers multiply
 * passes a quantizer, and so do the values that are added, averaged and scaled by channels: a network in which every
 * tensor has 8 bits. One quantizer for each value, however often it is read. It is called "<scope>.input_quantizer"
 * after the first convolution or linear layer that reads the value, else "<scope>.output_quantizer" after what makes
 * it; those of weights are "<scope>.weight_quantizer". `form` says how all of them round: channels those of weights,
 * positive those of values that ReLU, ReLU6 or a sigmoid keeps from being negative. */
void cvy_rewrite_quantize(struct cvy_graph *graph, const struct cvy_fake_quantize_attr *form);
/* Before cvy_rewrite_quantize, of the same form: batch norms are folded into the weights of the convolutions before
 * them, and what is rounded are the folded weights. In training the convolution with its own weights stays, for the
 * statistics (ops/fold.c); after `freeze` batches the running ones count alone (0: never). */
void cvy_rewrite_fold(struct cvy_graph *graph, const struct cvy_fake_quantize_attr *form, int64_t freeze);
/* Training, before backward: batch norm followed by (add, then) ReLU or ReLU6 becomes one node. Of the additions that
 * are left and the ReLU after them, those of a product with factors for each channel become part of it, others one
 * node. A frozen batch norm after a frozen convolution is folded as in inference. */
void cvy_rewrite_fuse_training(struct cvy_graph *graph);
/* Training, after backward: the output of a batch norm that the backward pass reads again is recomputed there by
 * BATCH_NORM_APPLY from the batch norm's input (which is kept anyway), just before its first backward reader, so that
 * it need not be kept from the forward pass. One with a residual only where the residual is there in the backward pass
 * too, or is the output of a batch norm without one, which is then made again first: of a stage of a ResNet no block's
 * output is kept, each is made from the one before it. Costs a read of each input and one write. The normalised images
 * are made again from their bytes. */
void cvy_rewrite_recompute(struct cvy_graph *graph);
/* Training, after backward: sums of two gradients that only one node reads. The gradient of a product with factors for
 * each channel takes in what comes back from the mean after the factors, which is then never written out. What only a
 * batch norm's backward node reads becomes part of that node, which saves a write and a read of the sum. */
void cvy_rewrite_fuse_backward(struct cvy_graph *graph);
/* Inference: batch norm is folded into the convolution before it; bias, residual add and ReLU (or ReLU6) become part of
 * the convolution where the chain is unbroken and each link has one reader; else addition and ReLU go as in training.
 */
void cvy_rewrite_fuse_inference(struct cvy_graph *graph);
/* Inference, after the fusing: symmetrically quantised layers, and what lies between them, become nodes of bytes.
 * `state`: the values of the graph's state parameters, which say what is rounded to which levels. The graph is one for
 * these values: a plan of it must not run with others. */
void cvy_rewrite_int8(struct cvy_graph *graph, const float *state);
/* Whether some of its layers compute in integers. */
bool cvy_graph_has_integers(const struct cvy_graph *graph);
/* Training, the last rewrite: a batch norm after a convolution takes the statistics of its input from there, as devices
 * like it that can have the convolution's kernel make them on its way (cvy_device.conv_statistics). */
void cvy_rewrite_statistics(struct cvy_graph *graph);
/* The same for one: the convolution whose output `norm` normalises, where it is a BATCH_NORM that computes statistics
 * itself; -1: there is none. */
int32_t cvy_statistics_find(const struct cvy_graph *graph, int32_t norm);
void cvy_statistics_take(struct cvy_graph *graph, int32_t norm);
/* A convolution and the batch norm with ReLU that is its only input, in training. */
struct cvy_conv_pattern {
    int32_t norm, conv; /* the batch norm has its statistics given, the convolution gives those of its output */
    int32_t weights;    /* the convolution's CONV2D_BWD_WEIGHTS; -1: it is frozen */
};
/* Whether convolution `conv` and nothing else but its gradient reads such a batch norm's output. */
bool cvy_prologue_find(const struct cvy_graph *graph, int32_t conv, struct cvy_conv_pattern *found);
/* The output is no longer made: both read the batch norm's input, normalise and rectify it on the way. */
void cvy_prologue_fuse(struct cvy_graph *graph, const struct cvy_conv_pattern *pattern);
/* `weights`, a CONV2D_BWD_WEIGHTS, alone reads what a BATCH_NORM_APPLY with ReLU and without residual makes: it makes
 * that itself on its way. Whether it was so; the other node is then detached, and goes with the dead ones. */
bool cvy_weights_take_norm(struct cvy_graph *graph, int32_t weights);
/* The BATCH_NORM_BWD, of a batch norm with ReLU and without residual, that alone reads what `data`, a CONV2D_BWD_DATA,
 * gives; -1: there is none. */
int32_t cvy_gradient_sums_find(const struct cvy_graph *graph, int32_t data);
/* The same, also where that one reads another gradient (more dy) beside it. */
int32_t cvy_gradient_sums_find_two(const struct cvy_graph *graph, int32_t data);
/* `data` adds the other gradient where there is one, masks its result and makes the sums of it, the gradients of gamma
 * and beta; `norm_bwd` reads x and dy once. */
void cvy_gradient_sums_fuse(struct cvy_graph *graph, int32_t data, int32_t norm_bwd);
/* The BATCH_NORM_BWD, of a batch norm with residual and ReLU whose sign is kept (cvy_norm_keep_sign), that alone reads
 * what `data`, a CONV2D_BWD_DATA, gives, beside the gradient of y's other reader; -1: there is none. */
int32_t cvy_residual_sums_find(const struct cvy_graph *graph, int32_t data);
/* The same whether the sign is kept or not, for who would ask for it. */
int32_t cvy_residual_sums_wanted(const struct cvy_graph *graph, int32_t data);
/* `data` adds that gradient to its result, masks it, which makes it the residual's gradient, and sums it; `norm_bwd`
 * reads x and dy once. Where the other reader comes later, the nodes are out of order until cvy_rewrite_order. */
void cvy_residual_sums_fuse(struct cvy_graph *graph, int32_t data, int32_t norm_bwd);
/* The batch norm at a block's end in closed form (rewrite_product_norm.c). */
struct cvy_product_norm {
    int32_t conv, norm, norm_bwd, weights, data; /* nodes: the convolution, its batch norm, and their gradients */
    int32_t again;                               /* what makes the block's output again; -1: nothing */
    int32_t after;       /* the gradient of the data of a convolution that reads the block's output */
    int32_t norm_before; /* the gradient of the batch norm before the convolution */
};
/* Whether `norm`, a BATCH_NORM with residual and ReLU, and its neighbours can be computed so. */
bool cvy_product_norm_find(const struct cvy_graph *graph, int32_t norm, struct cvy_product_norm *found);
/* Does it; `after` and `conv` then have inputs and outputs that not every kernel takes. The nodes are out of order
 * until cvy_rewrite_order. */
void cvy_product_norm_fuse(struct cvy_graph *graph, const struct cvy_product_norm *pattern);
/* Moves nodes before those that read what they write. */
void cvy_rewrite_order(struct cvy_graph *graph);
/* `norm_bwd`, a BATCH_NORM_BWD that reads y for its mask alone: the BATCH_NORM says beside y what of it passes the
 * activation, and the gradient reads that. Whether it was so; what made y again is then dead. */
bool cvy_norm_keep_sign(struct cvy_graph *graph, int32_t norm_bwd);
/* The residual of `norm`, a BATCH_NORM, is what another one without activation makes for it alone: that one gives its
 * statistics only, and `norm` makes the residual on its way. Whether it was so. */
bool cvy_norm_take_residual(struct cvy_graph *graph, int32_t norm);
/* The gradient of such a residual, which `norm_bwd` gives and the other BATCH_NORM_BWD alone reads, is handed on at
 * once. Only with the sign of y. Whether it was so; the other node is then detached, and goes with the dead ones. */
bool cvy_norm_take_residual_gradient(struct cvy_graph *graph, int32_t norm_bwd);
/* What `pool`, a MAX_POOL, alone reads is made by a batch norm with ReLU: that one gives its statistics only, and the
 * pool makes its input on the way. Whether it was so. */
bool cvy_pool_take_norm(struct cvy_graph *graph, int32_t pool);
/* What `pool_bwd`, a MAX_POOL_BWD, gives is read by the BATCH_NORM_BWD of such a batch norm alone, whose results it
 * then gives. Whether it was so; the other node is detached, and goes with the dead ones. */
bool cvy_pool_take_norm_gradient(struct cvy_graph *graph, int32_t pool_bwd);
/* What `pool_bwd` alone reads is a sum, which it then makes itself; as above. */
bool cvy_pool_take_sum(struct cvy_graph *graph, int32_t pool_bwd);
/* f64: every f32 value becomes f64, named results too. bf16 or f16: the values become 16 bits wide but for those that
 * `ops` holds at f32 (statistics, parameters of batch norms, weight gradients, the classifier and the loss). Inputs,
 * parameters, gradients and running statistics stay f32 after casts. */
void cvy_rewrite_precision(struct cvy_graph *graph, const struct cvy_op_info *ops, enum cvy_dtype dtype);
/* Removes nodes that no result needs and outputs that nobody reads where an op can leave them out, and renumbers values
 * and nodes. Inputs and parameters stay. */
void cvy_rewrite_remove_dead(struct cvy_graph *graph);
/* Nodes that depend on fixed parameters only, as a bitmap the caller frees with cvy_free (NULL: no memory): they run
 * once, not every batch. */
bool *cvy_graph_constant_nodes(const struct cvy_graph *graph);

/* One output more for a node; CVY_NONE: an error sticks in the graph. */
cvy_val cvy_graph_add_output(struct cvy_graph *graph, int32_t node, enum cvy_dtype dtype,
                             const struct cvy_shape *shape);

#endif
