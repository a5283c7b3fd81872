// The plain C interface; shapes were checked by the caller. Calls are made by one thread at a time.
//
// A library is compiled for one kind of weights and one kind of keys and values: DYNOFARM_WEIGHT is float, bf16
// or int8, DYNOFARM_VALUE is float or bf16. So it takes a few seconds instead of all their combinations.
#include <mutex>

#include "pool.hpp"
#include "pass.hpp"
#include "product.hpp"
#include "step.hpp"

namespace {

using dynofarm::bf16;

// Never destroyed: its threads may outlive main.
dynofarm::Pool& pool() {
    static dynofarm::Pool* held = new dynofarm::Pool;
    return *held;
}

std::mutex& calls() {
    static std::mutex* held = new std::mutex;
    return *held;
}

using int8 = std::int8_t;
using Weight = DYNOFARM_WEIGHT;
using Value = DYNOFARM_VALUE;

// On the threads of torch's operators, before and after which this runs; null: on threads of our own.
void run_beside_torch(dynofarm::Job& job, int threads, dynofarm::TeamStart team) {
    if (team) {
        pool().run_on_team(job, threads, team);
    } else {
        pool().run(job, threads);
    }
}

class Model {
   public:
    explicit Model(const dynofarm_weights& weights)
        : layers_(weights.layers, weights.layers + weights.config.layers), weights_(weights), job_(weights_), pass_(dynofarm::shape_of(weights.config)) {
        weights_.layers = layers_.data();
    }

    void step(const dynofarm_step& step, const dynofarm_store& store) {
        job_.prepare(step, store);
        pool().run(job_, step.threads);
    }

    void begin(const dynofarm_pass& pass, const dynofarm_store& store) { pass_.prepare(pass, store); }

    void attend(const dynofarm_layer_rows& rows, dynofarm::TeamStart team) {
        pass_.take(rows);
        run_beside_torch(pass_, pass_.threads(), team);
    }

   private:
    std::vector<dynofarm_layer> layers_;
    dynofarm_weights weights_;
    dynofarm::StepJob<Weight, Value> job_;
    dynofarm::PassJob<Value> pass_;
};

template <class Call>
int guarded(Call call) {
    std::lock_guard<std::mutex> lock(calls());
    try {
        call();
        return 0;
    } catch (...) {
        return 1;
    }
}

template <bool GATED>
int run_product(const dynofarm_product& product, void* team) {
    return guarded([&] {
        const auto start = reinterpret_cast<dynofarm::TeamStart>(team);
        if (product.rows <= dynofarm::FewRowsJob<Weight, GATED>::MOST_ROWS) {
            dynofarm::FewRowsJob<Weight, GATED> job(product);
            run_beside_torch(job, product.threads, start);
        } else {
            dynofarm::ProductJob<Weight, GATED> job(product);
            run_beside_torch(job, product.threads, start);
        }
    });
}

}  // namespace

extern "C" {

const char* dynofarm_instruction_set() { return dynofarm::instruction_set(); }

void* dynofarm_model_new(const dynofarm_weights* weights) {
    try {
        return new Model(*weights);
    } catch (...) {
        return nullptr;
    }
}

void dynofarm_model_free(void* model) { delete static_cast<Model*>(model); }

// 0, or 1 when there was no memory; so are the others.
int dynofarm_step_run(void* model, const dynofarm_step* step, const dynofarm_store* store) {
    return guarded([&] { static_cast<Model*>(model)->step(*step, *store); });
}

// The store's tables must stay until the last layer was attended.
int dynofarm_pass_begin(void* model, const dynofarm_pass* pass, const dynofarm_store* store) {
    return guarded([&] { static_cast<Model*>(model)->begin(*pass, *store); });
}

// `team`: GOMP_parallel of the libgomp that the caller's other operators use, or null for threads of our own.
int dynofarm_pass_attend(void* model, const dynofarm_layer_rows* rows, void* team) {
    return guarded([&] { static_cast<Model*>(model)->attend(*rows, reinterpret_cast<dynofarm::TeamStart>(team)); });
}

int dynofarm_product_run(const dynofarm_product* product, void* team) { return run_product<false>(*product, team); }

// silu(gate) * up of a weight whose rows are those of gate and then those of up, `outputs` each.
int dynofarm_gated_run(const dynofarm_product* product, void* team) { return run_product<true>(*product, team); }

}  // extern "C"
