#pragma once

#include "model/stage_part.hpp"
#include "options.hpp"

#include <stretto/adapter.hpp>
#include <stretto/plan.hpp>

#include <string>
#include <vector>

namespace train_moe {

/// The pipelines that ship.
std::vector<std::string> const& pipeline_names();

/// The pipeline that a run takes for `how`: the one of the command line, or the policy's own.
std::string pipeline_of(options const& o, policy how);

/// Whether that pipeline and `how` go together.
bool goes_with_pipeline(options const& o, policy how);

/// What every pipeline rank of the run does when. Throws `input_error` with the sentence of the rule if the pipeline cannot
/// serve these sizes or this policy.
stretto::plan plan_of(options const& o, policy how);

/// The routes of the messages of a plan, in one order on all ranks.
std::vector<stretto::message_route> routes_of(stretto::plan_facts const& facts);

/// The chunks of one pipeline rank, the layers spread as evenly as whole layers allow. Where there are fewer layers than
/// stages some have none.
std::vector<stage_part> parts_of(stretto::plan_facts const& facts, int pipeline_rank, int layers);

} // namespace train_moe
