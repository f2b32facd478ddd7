#include "cairn/page/page.h"

#include "cairn/base/str_cat.h"
#include "cairn/page/assets.h"
#include "cairn/page/chart.h"
#include "cairn/page/html.h"

namespace cairn::page {

namespace {

// The page may run its own script and load nothing, whatever text it contains.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
// Three stones on top of each other. Embedded, so that no browser asks a server for an icon.
constexpr std::string_view kIcon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32' fill='%230067a8'%3E"
    "%3Cellipse cx='16' cy='26' rx='13' ry='5'/%3E%3Cellipse cx='16' cy='16' rx='9' ry='4.5'/%3E"
    "%3Cellipse cx='16' cy='7' rx='6' ry='4'/%3E%3C/svg%3E";

void write_paragraph(std::string& out, const char* classes, const std::string& text) {
  if (!text.empty()) {
    out += str_cat("<p class=\"", classes, "\">", escape(text), "</p>\n");
  }
}

void write_figures(std::string& out, const std::vector<Figure>& figures) {
  if (figures.empty()) {
    return;
  }
  // One row, or two that are equally full.
  constexpr std::size_t kMostInARow = 6;
  const std::size_t rows = (figures.size() + kMostInARow - 1) / kMostInARow;
  out += str_cat("<dl class=\"figures\" style=\"--columns: ", (figures.size() + rows - 1) / rows, "\">\n");
  for (const Figure& figure : figures) {
    out += str_cat("<div><dt>", escape(figure.label), "</dt><dd>", escape(figure.value), "</dd>");
    if (!figure.note.empty()) {
      out += str_cat("<dd class=\"note\">", escape(figure.note), "</dd>");
    }
    out += "</div>\n";
  }
  out += "</dl>\n";
}

const char* class_of(Cell::Look look) {
  switch (look) {
    case Cell::Look::kPlain:
      return "";
    case Cell::Look::kBest:
      return " class=\"best\"";
    case Cell::Look::kWorse:
      return " class=\"worse\"";
  }
  return "";
}

void write_table(std::string& out, const Table& table) {
  out += str_cat("<figure class=\"table\"><figcaption><h3>", escape(table.title), "</h3>");
  write_paragraph(out, "note", table.note);
  out += "</figcaption><div class=\"scroll\"><table><thead><tr>";
  for (const std::string& name : table.head) {
    out += str_cat("<th scope=\"col\">", escape(name), "</th>");
  }
  out += "</tr></thead><tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const char* name = i == 0 ? "th" : "td";
      out += str_cat("<", name, i == 0 ? " scope=\"row\"" : "", class_of(row[i].look), ">", escape(row[i].text), "</",
                     name, ">");
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div></figure>\n";
}

void write_section(std::string& out, const Section& section, std::size_t& charts) {
  out += "<section>\n";
  if (!section.title.empty()) {
    out += str_cat("<h2>", escape(section.title), "</h2>\n");
  }
  write_paragraph(out, "text", section.text);
  write_figures(out, section.figures);
  if (!section.charts.empty()) {
    out += "<div class=\"charts\">\n";
    for (const Chart& chart : section.charts) {
      out += render_chart(chart, str_cat("chart-", ++charts));
    }
    out += "</div>\n";
  }
  for (const Table& table : section.tables) {
    write_table(out, table);
  }
  out += "</section>\n";
}

}  // namespace

std::string render(const Page& page) {
  std::string out = str_cat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"",
      kPolicy, "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"", kIcon, "\">\n<title>",
      escape(page.title), "</title>\n<style>\n", page_style(), "</style></head>\n<body><header>\n<h1>",
      escape(page.title), "</h1>\n");
  write_paragraph(out, "lead", page.lead);
  out += "</header>\n<main>\n";
  std::size_t charts = 0;
  for (const Section& section : page.sections) {
    write_section(out, section, charts);
  }
  out += "</main>\n<footer>";
  if (!page.command.empty()) {
    out += str_cat("Made by <code>", escape(page.command), "</code>");
  }
  return str_cat(out, "</footer>\n<script>\n", page_script(), "</script></body></html>\n");
}

}  // namespace cairn::page
