// A training run as text for a person and as a page (train_record.h has it as JSON).
#pragma once

#include <string>

#include "train_record.h"

namespace ttr::cli {

std::string train_heading(const TrainRecord&);  // what is trained, and the names of the columns
std::string train_line(const TrainRow&, const TrainRecord&);
/// The loss over the steps, `columns` wide; empty without any.
std::string train_curve(const TrainRecord&, int columns);
/// Seconds, speed and what is where.
std::string train_closing(const TrainRecord&);
/// For Progress: "step 120/600  loss 0.69  accuracy 0.53  12300 tokens/s".
std::string live_note(const TrainRecord&, std::int64_t steps, double loss, double accuracy, double tokens_per_second);
std::string train_report(const TrainRecord&);

}  // namespace ttr::cli
