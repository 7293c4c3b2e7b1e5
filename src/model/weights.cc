// SPDX-License-Identifier: Apache-2.0

#include "model/weights.h"

#include <utility>

#include "model/checkpoint_source.h"
#include "model/weight_source.h"

namespace gapless {

Result<ModelWeights> load_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                  const WeightOptions& options) {
  CheckpointSource source = GAPLESS_TRY(CheckpointSource::open(std::move(checkpoint), options));
  const ModelConfig config = source.config();
  return pack_weights(config, options, source);
}

}  // namespace gapless
