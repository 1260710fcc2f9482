// A run as one HTML page that needs nothing else: plots as inline SVG, tables, and how it was made. A script within the page
// (report_script.h) lets its reader look closer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plot.h"

namespace ttr::cli {

struct Report {
  std::string title, subtitle;
  std::vector<std::pair<std::string, std::string>> figures_of_merit;  // the few that matter: "MSE" -> "0.188"
  struct Table {
    std::string caption;
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows;
    int emphasised = -1;  // a row to stress: the best
  };
  std::vector<Table> tables;
  struct Figure {
    Plot plot;
    std::string caption;
  };
  std::vector<Figure> figures;
  struct Text {
    std::string title, caption, body;  // the body keeps its lines
  };
  std::vector<Text> texts;
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, std::string>> facts;  // "command" -> "ttr regress ..."
};

std::string report_html(const Report&);

}  // namespace ttr::cli
