// The page of the window. All that comes from the broker is written by textContent; rows are kept in Maps, since names
// may be "__proto__"; the key of the address is taken into localStorage and sent as a header.

const KEY = "kafkaprod-key";
const RECORDS = 50;
const TOPICS = 60;
const $ = (id) => document.getElementById(id);

const fragment = location.hash.match(/^#k=([\w-]+)/);
if (fragment) {
  localStorage.setItem(KEY, fragment[1]);
  history.replaceState(null, "", "/#/");
}
const key = localStorage.getItem(KEY) ?? "";

let about = {};
let state = null;
let source = null;
let screen = null;
let isPaused = false;
let showsInternal = false;
let lostAt = 0;

// -- small things -----------------------------------------------------------------------------------------------------

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (key === "title" || key === "colSpan" || key === "type" || key === "placeholder" || key === "value") made[key] = value;
    else if (key === "checked" || key === "disabled" || key === "required" || key === "tabIndex") made[key] = value;
    else made.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const text = (name, className, content, title = "") => {
  const made = element(name, { class: className }, String(content));
  if (title) made.title = title;
  return made;
};
const number = (value) => Number(value).toLocaleString("en-US");
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
const rate = (value) => (value ? (value < 10 ? value.toFixed(1) : number(Math.round(value))) : "0");
function clock(ms) {
  const date = new Date(Number(ms));
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}
function when(ms) {
  if (typeof ms === "string" || ms < 0) return [String(ms), "a timestamp that is no time"];
  return [clock(ms), new Date(ms).toISOString()];
}
function age(ms) {
  const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
  return s < 2 ? "now" : s < 120 ? `${s} s ago` : s < 7200 ? `${Math.round(s / 60)} min ago` : clock(ms);
}
const link = (address, shown, title = "") => {
  const made = element("a", { href: address }, isolated(shown));
  if (title) made.title = title;
  return made;
};
const isolated = (shown) => text("bdi", "", shown, shown);
const address = (kind, name, query = "") => `#/${kind}/${encodeURIComponent(toWellFormed(name))}${query}`;
const toWellFormed = (name) => (name.toWellFormed ? name.toWellFormed() : name);

async function ask(path, body = null) {
  const options = { headers: { "X-Kafkaprod-Token": key }, cache: "no-store" };
  if (body !== null) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  if (path === "/save" && answer.ok) return answer.blob();
  const content = answer.headers.get("Content-Type") === "application/json" ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(content.error);
  return content;
}

// -- values -----------------------------------------------------------------------------------------------------------

function shown(value, limit = 400) {
  const made = element("bdi", { class: `mono kind-${value.kind}` });
  made.textContent = value.kind === "hex" ? `⟨${value.text.slice(0, limit)}⟩` : value.text.slice(0, limit);
  const notes = [];
  if (value.kind === "text" && value.text === "null") made.textContent = '"null"';
  if (value.size > 256 || value.kind === "hex") notes.push(bytes(value.size));
  if (value.note) notes.push(value.note);
  if (!notes.length) return made;
  return element("span", {}, made, text("span", "soft", `  ${notes.join(" · ")}`));
}
function headersOf(record) {
  if (!record.n) return text("span", "soft", "–");
  const made = element("span", { class: "mono" });
  record.h.forEach(([name, value], index) => {
    if (index) made.append("  ");
    made.append(text("bdi", "soft", name), text("span", "soft", "="), shown(value, 80));
  });
  if (record.n > record.h.length) made.append(text("span", "soft", `  and ${record.n - record.h.length} more`));
  return made;
}

// -- tables whose rows stay -------------------------------------------------------------------------------------------

function table(columns) {
  const body = element("tbody");
  const head = element("tr", {}, columns.map(([name, className, title]) => {
    const cell = text("th", className, name, title ?? "");
    cell.scope = "col";
    return cell;
  }));
  return [element("div", { class: "card" }, element("table", {}, element("thead", {}, head), body)), body];
}
function setCells(row, cells) {
  while (row.children.length > cells.length) row.lastChild.remove();
  cells.forEach(([className, content, title, unit], index) => {
    let cell = row.children[index];
    if (!cell) row.append((cell = element("td")));
    if (cell.className !== className) cell.className = className;
    if (unit && cell.dataset.unit !== unit) cell.dataset.unit = unit;
    if (content instanceof Node) {
      if (cell.firstChild?.textContent !== content.textContent || cell.firstChild?.nodeName !== content.nodeName) cell.replaceChildren(content);
    } else if (cell.textContent !== String(content)) cell.textContent = content;
    const wanted = title ?? cell.textContent;
    if (cell.title !== wanted) cell.title = wanted;
  });
}
function opensBy(row, open) {
  row.classList.add("row");
  row.tabIndex = 0;
  row.addEventListener("click", (event) => { if (!event.target.closest("a,button,input") && !getSelection().toString()) open(); });
  row.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target === row) open(); });
}
const empty = (title, ...content) => element("div", { class: "card empty" }, text("h2", "", title), ...content);

// -- screens ----------------------------------------------------------------------------------------------------------

class Topics {
  query = "view=topics";
  constructor() {
    this.rows = new Map();
    this.made = new Map();
    this.seen = new Map();
    this.opened = Date.now();
    [this.card, this.body] = table([
      ["topic", "w-name"], ["part.", "num w-part", "partitions"], ["records", "num w-num"], ["/s", "num w-small", "records a second"],
      ["size", "num w-small"], ["newest", "w-time", "when the page saw the last write"], ["read by (lag)", "w-read", "groups, and how far they are behind"],
    ]);
    this.note = text("p", "note", "");
    this.hint = element("div");
    const head = element("div", { class: "head" }, text("h1", "", "Topics"), this.facts = text("span", "facts", ""),
      element("div", { class: "side" }, element("button", { type: "button", on: { click: createTopic } }, "New topic")));
    this.root = element("div", {}, head, this.hint, this.card, this.note);
  }
  on(event, data) {
    if (event !== "topics") return;
    for (const row of data.rows) {
      const before = this.rows.get(row.name);
      if (before && before.written !== row.written) this.seen.set(row.name, Date.now());
      this.rows.set(row.name, row);
    }
    for (const name of data.gone) this.rows.delete(name);
    this.draw();
  }
  draw() {
    const find = $("find").value.toLowerCase();
    const all = [...this.rows.values()];
    const hidden = all.filter((row) => row.internal).length;
    const wanted = all.filter((row) => (showsInternal || !row.internal) && row.name.toLowerCase().includes(find));
    wanted.sort((a, b) => (this.seen.has(b.name) - this.seen.has(a.name)) || a.name.localeCompare(b.name));
    const drawn = wanted.slice(0, TOPICS);
    const names = new Set(drawn.map((row) => row.name));
    for (const [name, row] of this.made) if (!names.has(name)) { row.remove(); this.made.delete(name); }
    drawn.forEach((row, index) => this.drawRow(row, index));
    this.facts.textContent = `${number(all.length - hidden)} topic${all.length - hidden === 1 ? "" : "s"} · ${state ? rate(state.rate) : 0} records/s`;
    const left = wanted.length - drawn.length;
    this.note.textContent = [
      left ? `${number(left)} more: type to find` : "",
      hidden && !showsInternal ? `${hidden} internal hidden (i shows them)` : "",
      !drawn.length && all.length > hidden ? "no topic has this in its name" : "",
    ].filter(Boolean).join(" · ");
    const isEmpty = all.length === hidden && !showsInternal;
    this.card.classList.toggle("hidden", isEmpty);
    if (isEmpty !== Boolean(this.hint.firstChild)) this.hint.replaceChildren(...(isEmpty ? [noTopics()] : []));
  }
  drawRow(row, index) {
    let made = this.made.get(row.name);
    if (!made) {
      made = element("tr");
      opensBy(made, () => { location.hash = address("topic", row.name); });
      this.made.set(row.name, made);
    }
    if (this.body.children[index] !== made) this.body.insertBefore(made, this.body.children[index] ?? null);
    const seen = this.seen.get(row.name);
    const readers = element("span");
    for (const [name, id, lag] of row.readers) {
      const pill = element("a", { href: address("group", id), class: lag ? "pill lag" : "pill" }, isolated(name), lag ? ` ${number(lag)} ▲` : " 0");
      readers.append(pill);
    }
    if (row.more) readers.append(text("span", "soft", `and ${row.more} more`));
    if (!row.readers.length) readers.append(text("span", "soft", "nobody"));
    setCells(made, [
      ["name", link(address("topic", row.name), row.name)],
      ["num drop", row.partitions, `${row.partitions} partitions`],
      [row.records ? "num r2" : "num r2 zero", number(row.records), null, row.records === 1 ? "record" : "records"],
      [row.rate ? "num r1" : "num r1 zero", rate(row.rate), null, "/s"],
      ["num drop", bytes(row.size), `${number(row.size)} bytes`],
      ["soft drop", seen ? age(seen) : row.written ? `before ${clock(this.opened).slice(0, 8)}` : "never"],
      ["wide", readers, readers.textContent],
    ]);
  }
}

function noTopics() {
  const at = about.bootstrap ?? "the broker";
  return empty("No topics yet", text("p", "", `Clients reach this broker at ${at}`),
    text("pre", "", `kafkaprod produce -b ${at} orders\nProducer(bootstrap_servers="${at}").send("orders", b"first")\nkcat -b ${at} -t orders -P`));
}

class Topic {
  constructor(name, options) {
    this.name = name;
    this.options = options;
    this.partition = options.get("partition") ?? "";
    this.query = `view=topic&topic=${encodeURIComponent(name)}&partition=${this.partition}`;
    this.records = [];
    this.made = new Map();
    this.details = new Map();
    this.waiting = [];
    this.passed = 0;
    this.found = null;
    this.began = Date.now();
    this.title = text("h1", "", name);
    this.facts = text("span", "facts", "");
    this.held = element("div");
    this.parts = element("select", { "aria-label": "partition", on: { change: () => this.go() } }, element("option", { value: "" }, "all partitions"));
    this.finder = element("input", { type: "search", placeholder: "in key, value or header", "aria-label": "find in records", value: options.get("find") ?? "" });
    this.offset = element("input", { type: "text", inputmode: "numeric", class: "small", placeholder: "offset", "aria-label": "offset", value: options.get("offset") ?? "" });
    for (const input of [this.finder, this.offset]) input.addEventListener("keydown", (event) => { if (event.key === "Enter") this.go(); });
    [this.card, this.body] = table([
      ["p:offset", "w-off", "partition and offset"], ["time", "w-time"], ["key", "w-key"], ["value", ""], ["headers", "w-head"],
    ]);
    this.note = element("p", { class: "note" });
    this.hint = element("div");
    this.root = element("div", {},
      element("div", { class: "head" }, this.title, this.facts,
        element("div", { class: "side" }, element("button", { type: "button", class: "main", title: "send a record (s)", on: { click: () => this.send() } }, "Send a record"))),
      this.readers = element("div", { class: "bar" }),
      this.held,
      element("div", { class: "bar" }, this.parts, this.finder, this.offset, element("button", { type: "button", on: { click: () => this.go() } }, "Find"),
        this.clear = element("button", { type: "button", class: "hidden", on: { click: () => { location.hash = address("topic", this.name); } } }, "Newest again")),
      this.hint, this.card, this.note);
    if (options.get("find") || options.get("offset")) this.search();
  }
  go() {
    const query = new URLSearchParams();
    if (this.parts.value) query.set("partition", this.parts.value);
    if (this.finder.value) query.set("find", this.finder.value);
    if (/^\d+$/.test(this.offset.value)) query.set("offset", this.offset.value);
    const wanted = address("topic", this.name, query.size ? `?${query}` : "");
    if (location.hash === wanted) show(); else location.hash = wanted;
  }
  async search(ends = null) {
    this.found ??= { rows: [], searched: 0 };
    this.clear.classList.remove("hidden");
    this.note.textContent = "searching …";
    const query = new URLSearchParams({ topic: this.name, partition: this.partition, find: this.options.get("find") ?? "" });
    if (ends) query.set("ends", JSON.stringify(ends)); else if (this.options.get("offset")) query.set("offset", this.options.get("offset"));
    try {
      const answer = await ask(`/records?${query}`);
      this.found.rows.push(...answer.rows);
      this.found.searched += answer.searched;
      this.records = this.found.rows;
      this.draw();
      const what = this.options.get("find") ? `${number(this.found.rows.length)} found in the newest ${number(this.found.searched)} records` : `up to offset ${this.options.get("offset")}`;
      this.note.replaceChildren(what);
      if (Object.keys(answer.left).length) {
        this.note.append(" · ", element("button", { type: "button", on: { click: () => this.search(answer.left) } }, "Search on"));
      }
    } catch (error) { this.note.textContent = error.message; }
  }
  on(event, data) {
    if (event === "topic") this.onTopic(data);
    if (event === "records" && !this.found) {
      this.passed += data.passed;
      this.waiting = [...data.rows, ...this.waiting].slice(0, RECORDS);
      this.waitingCount = (this.waitingCount ?? 0) + data.rows.length + data.passed;
      if (!isPaused) this.take(data.first);
      else this.note.textContent = `paused: ${number(this.waitingCount)} newer`;
    }
  }
  resume() { this.take(false); }
  take(isFirst) {
    const fresh = new Set(this.waiting.map((row) => `${row.p}:${row.o}`));
    this.records = [...this.waiting, ...this.records.filter((row) => !fresh.has(`${row.p}:${row.o}`))].slice(0, RECORDS);
    this.waiting = [];
    this.waitingCount = 0;
    this.draw(isFirst ? null : fresh);
    this.note.textContent = this.passed ? `${number(this.passed)} records since you opened this are not shown: the newest ${RECORDS} are` : "";
  }
  onTopic(data) {
    if (data.missing) {
      this.hint.replaceChildren(empty("There is no such topic", text("p", "", "It was deleted, or nobody has created it yet. This page shows it as soon as it exists.")));
      this.card.classList.add("hidden");
      return;
    }
    this.data = data;
    document.title = `${data.name} ${rate(data.rate)}/s · kafkaprod`;
    this.facts.textContent = `${data.count} partition${data.count === 1 ? "" : "s"} · ${number(data.records)} records · ${bytes(data.size)} · ${rate(data.rate)}/s`;
    if (this.parts.options.length !== data.partitions.length + 1) {
      this.parts.replaceChildren(element("option", { value: "" }, "all partitions"),
        ...data.partitions.map(([index]) => element("option", { value: String(index) }, `partition ${index}`)));
      this.parts.value = this.partition;
    }
    for (const [index, leader, start, stable, high] of data.partitions) {
      const option = this.parts.options[data.partitions.findIndex((row) => row[0] === index) + 1];
      const label = `${index}: ${number(start)}–${number(high)}${stable === high ? "" : ` (stable to ${number(stable)})`} on ${leader}`;
      if (option && option.textContent !== label) option.textContent = label;
    }
    this.held.replaceChildren(...data.held.map(([id, seconds, parts]) =>
      element("div", { class: "warnline" }, "Transaction ", isolated(id), ` is open for ${seconds} s: readers of committed records see nothing behind it in ${parts.length === 1 ? "partition" : "partitions"} ${parts.join(", ")}`)));
    this.readers.replaceChildren(text("span", "soft", "read by"), ...(data.readers.length ? data.readers.map(([name, id, lag]) =>
      element("a", { href: address("group", id), class: lag ? "pill lag" : "pill" }, isolated(name), lag ? ` ${number(lag)} behind ▲` : " up to date")) : [text("span", "soft", "nobody")]));
    if (!this.found) this.isEmpty();
  }
  isEmpty() {
    const none = !this.records.length;
    this.card.classList.toggle("hidden", none);
    if (none !== Boolean(this.hint.firstChild)) {
      this.hint.replaceChildren(...(none ? [empty("Nothing here", text("p", "", `No record can be read. Looked since ${clock(this.began).slice(0, 8)}.`))] : []));
    }
  }
  draw(fresh = null) {
    if (!this.found) this.isEmpty(); else this.card.classList.toggle("hidden", !this.records.length);
    const wanted = new Set(this.records.map((row) => `${row.p}:${row.o}`));
    for (const [id, row] of this.made) {
      if (wanted.has(id)) continue;
      if (this.details.has(id)) { this.records.push(row.record); wanted.add(id); continue; } // what is opened stays
      row.remove();
      this.made.delete(id);
    }
    let before = null;
    for (const record of this.records) {
      const id = `${record.p}:${record.o}`;
      let row = this.made.get(id);
      if (!row) {
        row = element("tr");
        row.record = record;
        opensBy(row, () => this.toggle(id));
        const [time, title] = when(record.t);
        setCells(row, [
          ["mono", id, `partition ${record.p}, offset ${record.o}`], ["soft mono", time, title],
          ["mono", shown(record.k)], ["wide", shown(record.v)], [record.n ? "wide" : "drop", headersOf(record)],
        ]);
        if (fresh?.has(id)) row.classList.add("fresh");
        this.made.set(id, row);
      }
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== row) this.body.insertBefore(row, place);
      before = this.details.get(id) ?? row;
      if (before !== row && row.nextSibling !== before) this.body.insertBefore(before, row.nextSibling);
    }
  }
  async toggle(id) {
    const open = this.details.get(id), row = this.made.get(id);
    if (open) {
      open.remove();
      this.details.delete(id);
      row.classList.remove("open");
      return;
    }
    const detail = element("tr", { class: "detail" }, element("td", { colSpan: 5 }, text("span", "soft", "reading …")));
    this.details.set(id, detail);
    row.classList.add("open");
    row.after(detail);
    await this.fill(id, detail.firstChild, false);
  }
  async fill(id, cell, all) {
    const [partition, offset] = id.split(":");
    const place = { topic: this.name, partition, offset };
    try {
      const record = await ask(`/record?${new URLSearchParams({ ...place, ...(all ? { all: 1 } : {}) })}`);
      cell.replaceChildren(detailOf(record, place, () => this.fill(id, cell, true)));
    } catch (error) { cell.replaceChildren(text("div", "badline", error.message)); }
  }
  send() { sendRecord(this.name, this.data); }
}

function detailOf(record, place, readAll) {
  const value = record.v;
  const pre = element("pre");
  const views = new Map();
  if (value.indented) views.set("JSON", value.indented);
  if (value.kind === "text" || value.kind === "json") views.set("text", value.text);
  if (value.kind === "null" || value.kind === "empty") views.set("value", value.kind === "null" ? "null: a tombstone, it deletes the key in a compacted topic" : "empty: no bytes, which is not null");
  if (value.hex) views.set("hex", value.hex);
  const buttons = element("span", { class: "choice", role: "group", "aria-label": "shown as" });
  const choose = (name) => {
    pre.textContent = views.get(name);
    pre.className = name === "hex" ? "hex" : "";
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.textContent === name));
  };
  for (const name of views.keys()) buttons.append(element("button", { type: "button", on: { click: () => choose(name) } }, name));
  choose([...views.keys()][0]);
  const [time, iso] = when(record.t);
  const headers = record.h.map(([name, content]) => [text("dt", "mono", name), element("dd", {}, shown(content, 4000))]);
  const tools = element("div", { class: "bar" }, buttons,
    element("button", { type: "button", on: { click: (event) => copy(event, value.text) } }, "Copy value"),
    element("button", { type: "button", on: { click: (event) => copy(event, record.k.text) } }, "Copy key"),
    element("button", { type: "button", on: { click: () => save(place) } }, "Save value"),
    text("span", "soft", `${number(value.size)} bytes${value.note ? ` · ${value.note}` : ""}`));
  const rest = value.isCut ? element("p", { class: "note" }, "The first 64 KiB are shown. ", element("button", { type: "button", on: { click: readAll } }, "Show up to 1 MiB")) : null;
  return element("div", {},
    element("dl", {}, text("dt", "", "time"), text("dd", "mono", `${time}  ${iso}`), text("dt", "", "key"), element("dd", {}, shown(record.k, 4000)),
      ...(headers.length ? headers.flat() : [text("dt", "", "headers"), text("dd", "soft", "none")])),
    tools, pre, rest);
}
async function copy(event, content) {
  await navigator.clipboard.writeText(content);
  const button = event.target, before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 900);
}
async function save(place) {
  const blob = await ask("/save", place);
  const made = element("a", { download: `${place.topic}-${place.partition}-${place.offset}.bin` });
  made.href = URL.createObjectURL(blob);
  made.click();
  URL.revokeObjectURL(made.href);
}

class Groups {
  query = "view=groups";
  constructor() {
    this.rows = new Map();
    this.made = new Map();
    [this.card, this.body] = table([
      ["group", "w-wide"], ["state", "w-time"], ["members", "num w-small"], ["lag", "num w-num"], ["topics", ""], ["protocol", "w-head"],
    ]);
    this.hint = element("div");
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", "Groups"), this.facts = text("span", "facts", "")), this.hint, this.card);
  }
  on(event, data) {
    if (event !== "groups") return;
    for (const row of data.rows) this.rows.set(row.id, row);
    for (const id of data.gone) this.rows.delete(id);
    this.draw();
  }
  draw() {
    const find = $("find").value.toLowerCase();
    const wanted = [...this.rows.values()].filter((row) => row.shown.toLowerCase().includes(find)).slice(0, 500);
    const ids = new Set(wanted.map((row) => row.id));
    for (const [id, row] of this.made) if (!ids.has(id)) { row.remove(); this.made.delete(id); }
    wanted.forEach((row, index) => {
      let made = this.made.get(row.id);
      if (!made) {
        made = element("tr");
        opensBy(made, () => { location.hash = address("group", row.id); });
        this.made.set(row.id, made);
      }
      if (this.body.children[index] !== made) this.body.insertBefore(made, this.body.children[index] ?? null);
      setCells(made, [
        ["name", link(address("group", row.id), row.shown)],
        ["r2", text("span", row.state === "Stable" ? "pill good" : row.state === "Empty" ? "pill" : "pill lag", row.state)],
        ["num drop", row.members],
        [row.lag ? "num r1" : "num r1 zero", row.lag === null ? "–" : row.lag ? `${number(row.lag)} ▲` : "0", null, "behind"],
        ["wide soft", row.topics.join(", ") || "nothing committed"],
        ["soft drop", `${row.protocol}, generation ${row.generation}${row.assignor ? `, ${row.assignor}` : ""}`],
      ]);
    });
    this.facts.textContent = `${this.rows.size}`;
    this.card.classList.toggle("hidden", !this.rows.size);
    this.hint.replaceChildren(...(this.rows.size ? [] : [empty("No group has joined or committed yet", text("p", "", "A consumer with a group id appears here as soon as it joins."))]));
  }
}

class Group {
  constructor(id) {
    this.query = `view=group&group=${encodeURIComponent(toWellFormed(id))}`;
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", id)));
  }
  on(event, data) {
    if (event !== "group" || isPaused) return;
    if (data.missing) {
      this.root.replaceChildren(empty("There is no such group", text("p", "", "It has neither members nor committed offsets.")));
      return;
    }
    const head = element("div", { class: "head" }, element("h1", {}, isolated(data.shown)),
      text("span", data.state === "Stable" ? "pill good" : "pill", data.state),
      text("span", "facts", `${data.protocol} · generation ${data.generation}${data.assignor ? ` · ${data.assignor}` : ""} · ${data.members} members · coordinator ${data.coordinator} · lag ${data.lag === null ? "–" : number(data.lag)}`));
    const owner = new Map();
    for (const member of data.list) for (const [topic, partition] of member.partitions) owner.set(`${topic} ${partition}`, member);
    const [card, body] = table([["partition", "w-name"], ["committed", "num w-num"], ["end", "num w-num"], ["lag", "num w-num"], ["committed at", "w-time"], ["member", ""], ["metadata", "w-head"]]);
    for (const row of data.offsets) {
      const made = element("tr"), member = owner.get(`${row.topic} ${row.partition}`);
      owner.delete(`${row.topic} ${row.partition}`);
      setCells(made, [
        ["name", link(address("topic", row.topic, `?partition=${row.partition}`), `${row.topic} ${row.partition}`)],
        ["num drop", number(row.offset)], ["num drop", row.end === null ? "–" : number(row.end)],
        [row.lag ? "num r1" : "num r1 zero", row.lag === null ? "–" : row.lag ? `${number(row.lag)} ▲` : "0", null, "behind"],
        ["soft drop", age(row.at), when(row.at)[1]],
        ["wide", member ? isolated(`${member.client} (${member.host})`) : text("span", "soft", "no member"), member?.id],
        ["soft drop", row.metadata || "–"],
      ]);
      body.append(made);
    }
    for (const [place, member] of owner) {
      const made = element("tr");
      setCells(made, [["name", isolated(place)], ["num soft", "none", "nothing committed: auto.offset.reset decides"], ["num drop", ""], ["num", "–"], ["soft drop", "never"], ["wide", isolated(`${member.client} (${member.host})`), member.id], ["drop", ""]]);
      body.append(made);
    }
    const [members, list] = table([["member", "w-wide"], ["client id", "w-name"], ["host", "w-time"], ["partitions", ""]]);
    for (const member of data.list) {
      const made = element("tr");
      setCells(made, [["name mono", isolated(member.id)], ["", isolated(member.client)], ["soft", member.host],
        ["wide", member.partitions.map(([topic, partition]) => `${topic} ${partition}`).join(", ") || "none"]]);
      list.append(made);
    }
    this.root.replaceChildren(head, body.children.length ? card : empty("Nothing committed"), text("h2", "", "Members"), data.list.length ? members : text("p", "note", "none"));
  }
}

class Transactions {
  query = "view=transactions";
  constructor() {
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", "Transactions")));
  }
  on(event, data) {
    if (event !== "transactions" || isPaused) return;
    const [card, body] = table([["transactional id", "w-wide"], ["state", "w-time"], ["open for", "num w-num"], ["timeout", "num w-small"], ["producer id · epoch", "w-time"], ["partitions", ""]]);
    for (const row of data) {
      const made = element("tr");
      setCells(made, [
        ["name", isolated(row.id)],
        ["", text("span", row.age === null ? "pill" : "pill lag", row.state)],
        [row.age === null ? "num zero" : "num", row.age === null ? "–" : `${row.age} s`], ["num drop", `${row.timeout} s`], ["soft drop", row.producer],
        ["wide", row.partitions.join(", ") + (row.more ? ` and ${row.more} more` : "") || "none"],
      ]);
      body.append(made);
    }
    this.root.replaceChildren(element("div", { class: "head" }, text("h1", "", "Transactions"), text("span", "facts", `${data.filter((row) => row.age !== null).length} open · ${data.length} ids`)),
      data.length ? card : empty("No transactional id has been used"));
  }
}

class Faults {
  query = "view=faults";
  constructor() {
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", "Faults")));
  }
  on(event, data) {
    if (event !== "faults" || isPaused) return;
    const [card, body] = table([["api", "w-name"], ["which", ""], ["fault", "w-wide"], ["matched", "num w-small"], ["fired", "num w-small"], ["left", "num w-small"], ["", "w-num"]]);
    for (const rule of data.rules) {
      const made = element("tr");
      const remove = element("button", { type: "button", on: { click: () => ask("/remove", { node: rule.node, rule: rule.number }) } }, "Remove");
      setCells(made, [
        ["name", `${rule.api}${data.rules.some((each) => each.node !== rule.node) ? ` on ${rule.node}` : ""}`], ["wide", isolated(rule.selected || "all requests")],
        ["wide mono", rule.fault], ["num drop", number(rule.matched)], [rule.fired ? "num r1" : "num r1 zero", number(rule.fired), null, "fired"],
        ["num drop", rule.left === null ? "all" : number(rule.left)], ["wide", remove, rule.note],
      ]);
      body.append(made);
    }
    const [firedCard, list] = table([["time", "w-time"], ["api", "w-name"], ["client id", "w-head"], ["hit", ""], ["broker", "num w-small"], ["rule", "num w-small"]]);
    for (const each of data.fired) {
      const made = element("tr"), [time, title] = when(each.time);
      setCells(made, [["soft mono", time, title], ["name", each.api], ["wide", isolated(each.client_id)],
        ["wide", each.parts.map(([topic, partition]) => (partition === null ? topic : `${topic} ${partition}`)).join(", ") || "the whole request"], ["num drop", each.node], ["num drop", each.rule]]);
      list.append(made);
    }
    this.root.replaceChildren(element("div", { class: "head" }, text("h1", "", "Faults"), text("span", "facts", `${data.rules.length} rules`)),
      data.rules.length ? card : empty("No rules", text("pre", "", 'from kafkaprod.broker.embedding.faults import reply_with\n\nbroker.faults.on("PRODUCE", reply_with("NOT_LEADER_OR_FOLLOWER"), topic="orders", partition=2, times=1)')),
      text("h2", "", "Fired"), data.fired.length ? firedCard : text("p", "note", "none since the broker started"));
  }
}

class Requests {
  query = "view=requests";
  constructor() {
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", "Requests"), this.facts = text("span", "facts", "")),
      this.counts = element("div", { class: "bar" }), this.hint = element("div"));
    [this.card, this.body] = table([["time", "w-time"], ["api", "w-head"], ["client id", "w-key"], ["about", ""], ["records", "num w-small"], ["size", "num w-small"], ["broker", "num w-part"]]);
    this.root.append(this.card);
  }
  on(event, data) {
    if (event !== "requests" || isPaused) return;
    this.data = data;
    this.draw();
  }
  draw() {
    if (!this.data) return;
    const find = $("find").value.toLowerCase();
    const wanted = this.data.rows.filter((row) => `${row.api} ${row.client} ${row.about}`.toLowerCase().includes(find));
    wanted.forEach((row, index) => {
      const made = this.body.children[index] ?? this.body.appendChild(element("tr"));
      const [time, title] = when(row.time);
      setCells(made, [["soft mono", time, title], ["name", `${row.api} v${row.version}`], ["wide", isolated(row.client || "–"), row.host],
        ["wide", isolated(row.about || "–")], [row.records ? "num" : "num zero drop", row.records ? number(row.records) : "–"], ["num drop", bytes(row.bytes)], ["num drop", row.node]]);
    });
    while (this.body.children.length > wanted.length) this.body.lastChild.remove();
    const total = this.data.counts.reduce((sum, row) => sum + row[2], 0);
    this.facts.textContent = `${number(total)} since the broker started · the newest ${wanted.length}`;
    this.counts.replaceChildren(...this.data.counts.slice(0, 16).map(([api, client, count]) => text("span", "pill", `${api} ${client} ${number(count)}`)));
    this.card.classList.toggle("hidden", !wanted.length);
    this.hint.replaceChildren(...(this.data.rows.length ? [] : [empty("No client has asked anything yet")]));
  }
}

class Brokers {
  query = "view=brokers";
  constructor() {
    this.root = element("div", {}, element("div", { class: "head" }, text("h1", "", "Brokers")));
    if (state) this.on("state", state);
  }
  on(event, data) {
    if (event !== "state") return;
    const [card, body] = table([["broker", "w-part"], ["state", "w-time"], ["since", "w-time"], ["address", ""]]);
    for (const broker of data.brokers) {
      const made = element("tr");
      setCells(made, [["name", broker.id], ["", text("span", broker.state === "up" ? "pill good" : "pill bad", broker.state)],
        ["soft", clock(broker.since).slice(0, 8)], ["wide mono", about.addresses?.[broker.id] ?? "–"]]);
      body.append(made);
    }
    this.root.replaceChildren(element("div", { class: "head" }, text("h1", "", "Brokers"), text("span", "facts", about.bootstrap ?? "")), card);
  }
}

const TABS = [
  ["topics", "Topics", () => state?.topics], ["groups", "Groups", () => state?.groups],
  ["transactions", "Transactions", () => state?.open, true], ["requests", "Requests", () => 0], ["faults", "Faults", () => state?.faults, true], ["brokers", "Brokers", () => state?.brokers.length],
];
const SCREENS = { topics: Topics, groups: Groups, transactions: Transactions, faults: Faults, requests: Requests, brokers: Brokers, topic: Topic, group: Group };
const TAB_OF = { topic: "topics", group: "groups" };

// -- dialogs ----------------------------------------------------------------------------------------------------------

function dialog(title, form, submit) {
  const note = text("span", "note", "");
  const made = element("dialog", { "aria-label": title }, text("h2", "", title), form);
  form.append(element("div", { class: "foot" }, note,
    element("button", { type: "button", on: { click: () => made.close() } }, "Close"), element("button", { type: "submit", class: "main" }, "Do it")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try { note.textContent = await submit(); } catch (error) { note.textContent = error.message; }
  });
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}
function nullable(input) {
  const check = element("input", { type: "checkbox", on: { change: () => { input.disabled = check.checked; } } });
  return [element("div", { class: "pair" }, input, element("label", { class: "check" }, check, " null")), () => (check.checked ? null : input.value)];
}
function sendRecord(topic, data) {
  const [keyPair, keyOf] = nullable(element("input", { type: "text", "aria-label": "key", autocomplete: "off" }));
  const [valuePair, valueOf] = nullable(element("textarea", { "aria-label": "value", spellcheck: "false" }));
  const headers = element("textarea", { "aria-label": "headers", placeholder: "name=value, one a line", spellcheck: "false", class: "heads" });
  const part = element("select", { "aria-label": "partition" }, element("option", { value: "" }, "by key"),
    ...(data?.partitions ?? []).map(([index]) => element("option", { value: String(index) }, `partition ${index}`)));
  const label = (name) => text("span", "soft", name);
  const form = element("form", { class: "send" }, label("key"), keyPair, label("value"), valuePair, label("headers"), headers, label("partition"), part);
  dialog(`Send a record to ${topic}`, form, async () => {
    const pairs = headers.value.split("\n").filter(Boolean).map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? [line, null] : [line.slice(0, at), line.slice(at + 1)];
    });
    const sent = await ask("/send", { topic, key: keyOf(), value: valueOf(), headers: pairs, partition: part.value === "" ? null : Number(part.value) });
    return `it is at ${sent.partition}:${sent.offset}`;
  });
}
function createTopic() {
  const name = element("input", { type: "text", required: true, "aria-label": "name", autocomplete: "off" });
  const count = element("input", { type: "number", value: "1", min: "1", max: "10000", "aria-label": "partitions" });
  const form = element("form", { class: "send" }, text("span", "soft", "name"), name, text("span", "soft", "partitions"), count);
  const made = dialog("New topic", form, async () => {
    await ask("/create", { topic: name.value, partitions: Number(count.value) });
    made.close();
    return "";
  });
}

// -- the whole --------------------------------------------------------------------------------------------------------

function show() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, name] = path.split("/");
  const view = Object.hasOwn(SCREENS, kind) ? kind : "topics";
  const named = name === undefined ? "" : decodeURIComponent(name);
  document.title = "kafkaprod";
  $("find").value = "";
  $("find").classList.toggle("hidden", !["topics", "groups", "requests"].includes(view));
  screen = new SCREENS[view](named, new URLSearchParams(query));
  screen.view = view;
  $("main").replaceChildren(screen.root);
  drawTabs();
  connect();
}
function drawTabs() {
  const current = TAB_OF[screen?.view] ?? screen?.view;
  const tabs = $("tabs");
  TABS.forEach(([name, title, count, warns], index) => {
    let tab = tabs.children[index];
    if (!tab) {
      tab = element("a", { href: `#/${name}`, title: `${title} (${index + 1})` }, title, text("span", "count", ""));
      tabs.append(tab);
    }
    if (name === current) tab.setAttribute("aria-current", "page"); else tab.removeAttribute("aria-current");
    const value = count() ?? 0;
    tab.lastChild.textContent = value ? number(value) : "";
    tab.lastChild.classList.toggle("warn", Boolean(warns && value));
  });
}
function connect() {
  source?.close();
  if (document.hidden) return;
  const opened = new EventSource(`/events?token=${encodeURIComponent(key)}&${screen.query}`);
  source = opened;
  const names = ["hello", "state", "topics", "topic", "records", "groups", "group", "transactions", "faults", "requests"];
  for (const name of names) {
    opened.addEventListener(name, (event) => { if (opened === source) receive(name, JSON.parse(event.data)); });
  }
  opened.onerror = () => {
    if (opened !== source) return;
    lostAt ||= Date.now();
    say("down", `lost the window at ${clock(lostAt).slice(0, 8)}: is the broker closed, or is the address of an earlier start?`);
    if (opened.readyState === EventSource.CLOSED) setTimeout(() => { if (opened === source) connect(); }, 1000);
  };
}
function receive(name, data) {
  if (lostAt) lostAt = 0;
  if (name === "hello") {
    about = data;
    $("address").textContent = data.bootstrap ?? "";
    $("address").title = data.bootstrap ?? "";
    return;
  }
  if (name === "state") {
    state = data;
    drawTabs();
    sayState();
  }
  screen.on(name, data);
}
function sayState() {
  const away = state.brokers.filter((broker) => broker.state !== "up");
  if (away.length) {
    const words = { down: "is down", silent: "does not answer" };
    say(away.length === state.brokers.length ? "down" : "paused",
      away.map((broker) => `broker ${broker.id} ${words[broker.state]} since ${clock(broker.since).slice(0, 8)}`).join(" · ") + (away.length === state.brokers.length ? ": shown is what was true then" : ""));
  } else if (isPaused) say("paused", "paused");
  else say("up", `live · ${rate(state.rate)} records/s`);
  document.documentElement.classList.toggle("stale", away.length === state.brokers.length);
}
function say(kind, words) {
  $("dot").className = `dot ${kind}`;
  if ($("state").textContent !== words) $("state").textContent = words;
  if (kind === "down") document.documentElement.classList.add("stale");
}
function pause() {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  $("pause").textContent = isPaused ? "Continue" : "Pause";
  if (!isPaused) screen.resume?.();
  if (state) sayState();
}
function move(step) {
  const rows = [...document.querySelectorAll("tr.row")];
  const now = rows.indexOf(document.activeElement.closest?.("tr.row"));
  rows[Math.min(rows.length - 1, Math.max(0, now + step))]?.focus();
}
function goBack() {
  if (screen.details?.size) return [...screen.details.keys()].forEach((id) => screen.toggle(id));
  const up = TAB_OF[screen.view];
  if (up) location.hash = `#/${up}`;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const actions = {
    "/": () => (screen.finder ?? $("find")).focus(), j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    Escape: goBack, p: pause, "?": () => $("keys").showModal(), s: () => screen.send?.(),
    i: () => { showsInternal = !showsInternal; screen.draw?.(); },
  };
  const isArrow = event.key.startsWith("Arrow");
  if (isArrow && !document.activeElement.closest?.("tr.row")) return;
  const tab = TABS[Number(event.key) - 1];
  if (tab) location.hash = `#/${tab[0]}`;
  else if (Object.hasOwn(actions, event.key)) actions[event.key]();
  else return;
  event.preventDefault();
});
document.addEventListener("visibilitychange", () => { if (document.hidden) { source?.close(); source = null; } else connect(); });
$("find").addEventListener("input", () => screen.draw?.());
$("pause").addEventListener("click", pause);
$("help").addEventListener("click", () => $("keys").showModal());
$("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
window.addEventListener("hashchange", show);
show();
