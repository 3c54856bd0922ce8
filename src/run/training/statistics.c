#include "run/training/statistics.h"

#include "base/error.h"

cvy_status cvy_run_precise_statistics(struct cvy_run *run, bool average)
{
    struct cvy_statistics *statistics = &run->state.statistics;
    struct cvy_store *store = average ? &run->state.network.average : &run->state.network.store;
    const int64_t all = cvy_source_batches(&run->data.train_source), wanted = run->config->options.precise_bn;
    const struct cvy_batch *batch;

    if (!statistics->network)
        return CVY_OK;
    CVY_TRY(cvy_source_start(&run->data.train_source, run->state.progress.epoch, 0));
    CVY_TRY(cvy_statistics_start(statistics, store));
    for (int64_t i = 0; i < wanted && i < all; i++) {
        if (run->ranks.comm.world == 1 && cvy_run_stopping(run))
            return cvy_fail(CVY_STOPPED, "stopped before the validation");
        CVY_TRY(cvy_source_next(&run->data.train_source, &batch));
        if (!batch || batch->count < run->config->options.batch_size)
            break;
        CVY_TRY(cvy_statistics_add(statistics, batch->images));
    }
    return cvy_statistics_finish(statistics, store);
}
