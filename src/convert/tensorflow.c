/* .index: a checkpoint of TensorFlow under the names of NVIDIA's programs, which their Saver restores: for
 * classification the variables of the network, of a training their slots, and the number of steps. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "convert/convert.h"
#include "formats/weights/tensorflow_write.h"
#include "models/naming_tensorflow.h"

/* ImageNet's classes, and the outputs that the program has for them: its labels come from files that count from 1. */
enum { CLASSES = 1000, OUTPUTS = 1001 };

/* The output that no image belongs to is below the mean of all others by this much: with K outputs its probability is
 * at most exp(-16) / K, whatever the image. */
static const float BELOW = 16;

/* ---- the last output ---- */

/* The tensor with one row more at its end: the mean of its rows less `below`, or zeros. */
static cvy_status add_row(struct cvy_conversion *c, struct cvy_named_tensor *tensor, bool mean, float below)
{
    const int64_t rows = tensor->shape.dim[0], width = cvy_shape_elements(&tensor->shape) / rows;
    const size_t bytes = (size_t)((rows + 1) * width) * sizeof(float);
    float *values = cvy_arena_alloc(&c->arena, bytes);

    if (!values)
        return cvy_fail_memory(bytes, tensor->name);
    cvy_tensor_floats(tensor, values);
    for (int64_t k = 0; k < width; k++) {
        double sum = 0;

        for (int64_t i = 0; mean && i < rows; i++)
            sum += (double)values[i * width + k];
        values[rows * width + k] = (float)(sum / (double)rows) - below;
    }
    tensor->shape.dim[0] = rows + 1;
    tensor->dtype = CVY_F32;
    tensor->data = values;
    tensor->bytes = bytes;
    return CVY_OK;
}

static cvy_status add_output(struct cvy_conversion *c, struct cvy_tensor_list *list, bool mean)
{
    for (size_t i = 0; i < list->count; i++) {
        struct cvy_named_tensor *tensor = &list->tensors[i];
        const bool bias = strcmp(tensor->name, "fc.bias") == 0;

        if (bias || strcmp(tensor->name, "fc.weight") == 0)
            CVY_TRY(add_row(c, tensor, mean, mean && bias ? BELOW : 0));
    }
    return CVY_OK;
}

static cvy_status add_outputs(struct cvy_conversion *c)
{
    CVY_TRY(add_output(c, &c->weights, true));
    CVY_TRY(add_output(c, &c->average, true));
    CVY_TRY(add_output(c, &c->momentum, false));
    return add_output(c, &c->squares, false);
}

/* ---- files ---- */

/* What tf.train.latest_checkpoint reads, by which the program finds its checkpoint; one that is there already stays. */
static cvy_status write_state(const char *index)
{
    const char *slash = strrchr(index, '/'), *base = slash ? slash + 1 : index;
    const size_t length = strlen(base) - strlen(".index");
    struct cvy_text text = {0}, path = {0};
    cvy_status status = CVY_OK;

    cvy_text_printf(&path, "%.*scheckpoint", (int)(base - index), index);
    cvy_text_puts(&text, "model_checkpoint_path: \"");
    for (size_t i = 0; i < length; i++)
        cvy_text_printf(&text, base[i] == '"' || base[i] == '\\' ? "\\%c" : "%c", base[i]);
    cvy_text_puts(&text, "\"\n");
    if (text.failed || path.failed)
        status = cvy_fail_memory(length, "the state of a checkpoint");
    else if (!cvy_path_exists(path.text))
        status = cvy_file_replace(path.text, text.text, text.length);
    else
        cvy_log(CVY_LOG_INFO, "%s is there and stays as it is", cvy_quote(path.text));
    cvy_text_release(&path);
    cvy_text_release(&text);
    return status;
}

/* Steps of the training: Convoy's own, else those of a checkpoint that came from TensorFlow; 0 without a training. */
static int64_t read_step(const struct cvy_conversion *c)
{
    double step = 0;

    if (c->options->ema || c->options->weights_only)
        return 0;
    if (c->info.has_state)
        return c->info.state.step;
    return cvy_convert_number(c, CVY_TENSORFLOW_STEP, &step) && step > 0 && step < 1e15 ? (int64_t)step : 0;
}

/* Such a file has no place for the size of images: what reads it takes the network's usual one. */
static void warn_of_image_size(const struct cvy_conversion *c)
{
    const int size = (int)c->preprocessing.image_size;

    if (size != c->architecture->default_image_size)
        cvy_log(CVY_LOG_WARNING,
                "%s is for images of %d pixels, which a checkpoint of TensorFlow's programs cannot say: give "
                "--image-size %d with %s",
                cvy_quote(c->options->input), size, size, cvy_quote(c->options->output));
}

cvy_status cvy_convert_tensorflow(struct cvy_conversion *c)
{
    struct cvy_tensor_list all;
    int64_t step = read_step(c);
    const bool classifier = c->architecture->task == CVY_TASK_CLASSIFY;

    if (classifier && c->model.num_classes == CLASSES)
        CVY_TRY(add_outputs(c));
    else if (classifier && c->model.num_classes != OUTPUTS)
        cvy_log(CVY_LOG_WARNING, "%s has %d classes: TensorFlow's program restores %d outputs (of 1000 classes) alone",
                cvy_quote(c->options->input), (int)c->model.num_classes, OUTPUTS);
    warn_of_image_size(c);
    CVY_TRY(cvy_convert_everything(c, 1, &all));
    all.tensors[all.count++] =
        (struct cvy_named_tensor){.name = "global_step", .dtype = CVY_I64, .data = &step, .bytes = sizeof step};
    CVY_TRY(cvy_tensorflow_write_from(&c->file, c->options->input, c->options->output, all.tensors, all.count));
    return write_state(c->options->output);
}
