#pragma once

namespace train_moe {

/// What one stage of a pipeline holds of the model: layers from `first` up to `end`, none if they are equal. Stages at the
/// ends have the embedding and the head as well.
struct stage_part {
  int first = 0;
  int end = 0;
  bool embeds = false;
  bool has_head = false;
};

} // namespace train_moe
