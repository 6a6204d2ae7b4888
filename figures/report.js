"use strict";

// Sorting: a button in each column's heading; up, down, then as it was. Missing values stay last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  if (original.length < 2) continue;
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[heading.getAttribute("aria-sort")];
      for (const other of headings) other.setAttribute("aria-sort", other === heading ? next : "none");
      body.append(...(next === "none" ? original : sorted(original, column, heading, next)));
    });
  });
}

function sorted(rows, column, heading, order) {
  const numeric = heading.classList.contains("n");
  const sign = order === "ascending" ? 1 : -1;
  const keyed = rows.map((row) => ({ row, key: key(row.cells[column], numeric) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    return sign * (numeric ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true }));
  });
  return keyed.map((entry) => entry.row);
}

function key(cell, numeric) {
  const text = cell.textContent.trim();
  if (!numeric) return text === "" || text === "–" ? null : text;
  const value = parseFloat(cell.title || text.replace("−", "-").replace("∞", "Infinity"));
  return Number.isNaN(value) ? null : value;
}

// Downloads: browsers refuse long links, so that the text is handed over as a file of its own.
for (const link of document.querySelectorAll('a[download][href^="data:"]')) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const text = decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1));
    const file = document.createElement("a");
    file.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    file.download = link.download;
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), 60000);
  });
}
