// Copy buttons beside code, and a filter above long tables.
"use strict";

(() => {
  // What a reader wants of a session is what was typed: prompts and answers stay behind.
  const typed = (text) => {
    const lines = text.split("\n");
    if (!lines.some((l) => l.startsWith(">>> "))) return text;
    return lines.filter((l) => /^(>>>|\.\.\.)( |$)/.test(l)).map((l) => l.slice(4)).join("\n") + "\n";
  };

  const button = (pre) => {
    const box = document.createElement("div"), b = document.createElement("button");
    box.className = "copied";
    b.type = "button";
    b.textContent = "copy";
    b.setAttribute("aria-label", "copy this code");
    b.addEventListener("click", async () => {
      const text = typed(pre.innerText);
      try {
        await navigator.clipboard.writeText(text);
        b.textContent = "copied";
      } catch {
        const range = document.createRange(); // a page from a file has no clipboard: the code is marked
        range.selectNodeContents(pre);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        b.textContent = "marked";
      }
      setTimeout(() => (b.textContent = "copy"), 1500);
    });
    pre.parentNode.insertBefore(box, pre);
    box.append(pre, b);
  };

  const filter = (table) => {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length < 25) return;
    const box = document.createElement("p"), input = document.createElement("input"), said = document.createElement("output");
    box.className = "filter";
    input.type = "search";
    input.placeholder = "filter these rows: words that all have to occur";
    input.setAttribute("aria-label", "filter the rows of this table");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
        shown += !row.hidden;
      }
      said.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
    box.append(input, said);
    table.classList.add("filtered");
    const holder = table.closest(".wy-table-responsive") || table;
    holder.parentNode.insertBefore(box, holder);
  };

  const start = () => {
    document.querySelectorAll(".rst-content pre").forEach(button);
    document.querySelectorAll(".rst-content table").forEach(filter);
  };
  // The theme puts tables into boxes of its own first.
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
})();
