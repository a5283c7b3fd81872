// The plain C interface; shapes were checked by the caller. Calls are made by one thread at a time.
#include <mutex>

#include "pool.hpp"
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

class Model {
   public:
    virtual ~Model() = default;
    virtual void step(const dynofarm_step& step, const dynofarm_store& store) = 0;
};

template <class Weight, class Value>
class TypedModel : public Model {
   public:
    explicit TypedModel(const dynofarm_weights& weights)
        : layers_(weights.layers, weights.layers + weights.config.layers), weights_(weights), job_(weights_) {
        weights_.layers = layers_.data();
    }

    void step(const dynofarm_step& step, const dynofarm_store& store) override {
        job_.prepare(step, store);
        pool().run(job_, step.threads);
    }

   private:
    std::vector<dynofarm_layer> layers_;
    dynofarm_weights weights_;
    dynofarm::StepJob<Weight, Value> job_;
};

Model* make_model(const dynofarm_weights& weights) {
    const bool narrow_keys = weights.config.kv_kind == DYNOFARM_BFLOAT16;
    switch (weights.config.weight_kind) {
        case DYNOFARM_FLOAT32: return new TypedModel<float, float>(weights);
        case DYNOFARM_BFLOAT16: return new TypedModel<bf16, bf16>(weights);
        default:
            if (narrow_keys) return new TypedModel<std::int8_t, bf16>(weights);
            return new TypedModel<std::int8_t, float>(weights);
    }
}

}  // namespace

extern "C" {

const char* dynofarm_instruction_set() { return dynofarm::instruction_set(); }

void* dynofarm_model_new(const dynofarm_weights* weights) {
    try {
        return make_model(*weights);
    } catch (...) {
        return nullptr;
    }
}

void dynofarm_model_free(void* model) { delete static_cast<Model*>(model); }

// 0, or 1 when there was no memory for the step.
int dynofarm_step_run(void* model, const dynofarm_step* step, const dynofarm_store* store) {
    std::lock_guard<std::mutex> lock(calls());
    try {
        static_cast<Model*>(model)->step(*step, *store);
        return 0;
    } catch (...) {
        return 1;
    }
}

}  // extern "C"
