"use strict";
// The page is complete without this: it sorts tables, hides what is switched off, and opens all before printing.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const say = (text) => { const place = document.getElementById("said"); if (place) place.textContent = text; };

  const value = (row, column) => {
    const cell = row.cells[column];
    return "key" in cell.dataset ? Number(cell.dataset.key) : cell.textContent.trim();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  for (const button of all("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const column = Number(button.dataset.column);
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of all("th", head.parentElement)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const body = head.closest("table").tBodies[0];
      const sign = order === "ascending" ? 1 : -1;
      const known = (row) => typeof value(row, column) === "number";
      const rows = [...body.rows].sort((a, b) => {
        // A dash is no number: it stays at the end, whichever way the column is sorted.
        if (head.classList.contains("number") && known(a) !== known(b)) return known(a) ? -1 : 1;
        return sign * compare(value(a, column), value(b, column));
      });
      body.append(...rows);
      say(`Sorted by ${button.textContent.trim()}, ${order}.`);
    });
  }

  const off = { phase: new Set(), model: new Set() };
  const apply = () => {
    let hidden = 0;
    for (const item of all("tr[data-model], tr[data-phase], figure[data-model], figure[data-phase]")) {
      const away = off.phase.has(item.dataset.phase) || off.model.has(item.dataset.model);
      item.classList.toggle("off", away);
      if (away && item.matches("tr")) hidden += 1;
    }
    say(hidden ? `${hidden} rows are hidden.` : "All rows are shown.");
  };
  for (const box of all("[data-switch]")) {
    box.addEventListener("change", () => {
      if (box.dataset.switch === "warmup") {
        document.body.classList.toggle("no-warmup", !box.checked);
        say(box.checked ? "Warm-up is shown." : "Warm-up is hidden.");
        return;
      }
      off[box.dataset.switch][box.checked ? "delete" : "add"](box.value);
      apply();
    });
  }
  for (const block of all(".switches")) block.hidden = false;

  const folded = () => all("details:not([open])");
  let opened = [];
  window.addEventListener("beforeprint", () => { opened = folded(); for (const item of opened) item.open = true; });
  window.addEventListener("afterprint", () => { for (const item of opened) item.open = false; });
})();
