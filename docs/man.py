"""man.py - writes the man pages out of include/fiber.h: docs/man.py <header> <folder> <example>...
fiber.conf(5) out of `fiber config show --json`:         docs/man.py --settings <file> <header> <folder>
and those of the command out of `fiber help`:            docs/man.py --command <header> <folder> <fiber>...

The header is the manual; nothing is said here that it does not say. Each of its sections (`/* ---- Queue ---- */`) is
a page of man3, named in PAGES, and so is each function. The comment that the header opens with is fiber(7). A
function's page is made of:

    NAME          the first sentence of its comment
    RETURN VALUE  the sentences that begin with "Returns"; else 0 or a negative errno
    ERRORS        the sentences that begin with a code, "-EPIPE: the owner is gone."
    DESCRIPTION   the other sentences, and all paragraphs but the first
    EXAMPLE       the lines around the call in the shortest of the examples that has it; those are compiled and run

A function without a comment, or that no example calls, is an error.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import subprocess
import sys
import time

# section of the header -> page, what it is about
PAGES = {
    "The library": ("fiber_library", "join a process to Fiber, configure it, errors and memory"),
    "Processes": ("fiber_process", "job-backed processes"),
    "Addresses": ("fiber_address", "where a queue, a pipe's end, a manager or a store lives"),
    "Queue": ("fiber_queue", "messages between processes, many senders and receivers"),
    "Pipe": ("fiber_pipe", "a connection between two ends in any two processes"),
    "Manager": ("fiber_manager", "a process that owns a state and runs methods on it"),
    "Store": ("fiber_store", "shared state: dictionary, lists, counters, locks"),
    "Host-shared memory": ("fiber_shared", "memory that the processes of a host share"),
    "Pool": ("fiber_pool", "an elastic set of worker processes that share one task list"),
    "Ring": ("fiber_ring", "ranks of an MPI, torch.distributed or plain program, booted and pinned"),
    "Waiting for several things": ("fiber_wait", "wait for queues, pipes, processes, results and others at once"),
}
WIDTH = 78  # of a prototype
# titles of the lists in a page of help -> those of its man page
TITLES = {"Options:": "OPTIONS", "Examples:": "EXAMPLES", "Exit code:": "EXIT STATUS"}


class Item:
    """A declaration with its comments, or (code empty) a comment that stands alone."""

    def __init__(self, text, code=""):
        self.text, self.code = text, code

    def kind(self):
        for kind, start in (("function", r"FIBER_API"), ("opaque", r"struct \w+;"), ("type", r"struct|enum|typedef"),
                            ("macro", r"#define")):
            if re.match(start, self.code):
                return kind
        return "comment"

    def names(self):
        """What of it gets a link: the function, the type."""
        if self.kind() == "function":
            return re.findall(r"\b(fiber_\w+)\(", self.code)[:1]
        return re.findall(r"(?:^struct |^enum |^typedef .*\(\*)(fiber_\w+)", self.code)

    def prototype(self):
        """Of a function, on one line, without what is for compilers only."""
        code = re.sub(r"^FIBER_API | FIBER_PRINTF\(.*?\)", "", self.code)
        return re.sub(r"\s+", " ", code)


# ---- Reading the header ----


def comment_text(comment):
    """The lines of a comment without what makes it one."""
    body = re.sub(r"^/\*|\*/$", "", comment.strip())
    return [re.sub(r"^ ?\*? ?", "", line, count=1).rstrip() for line in body.split("\n")]


def take_declaration(lines, at):
    """Up to the semicolon outside of braces; a comment behind it on its line belongs to it. The item, the next line."""
    code, end = "", at
    while True:
        code += lines[end] + "\n"
        end += 1
        bare = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
        if code.startswith("#") or (bare.count("{") == bare.count("}") and bare.rstrip().endswith(";")):
            break
    tail = re.search(r";\s*(/\*.*\*/)\s*$", code)
    if tail and not code.startswith("#"):
        return Item(comment_text(tail.group(1)), code[: tail.start() + 1].strip()), end
    return Item([], code.strip()), end


def read_items(text):
    """The items of a section, each declaration with the comment right above it."""
    lines, items, at = text.split("\n"), [], 0
    above = None
    while at < len(lines) and not lines[at].startswith("#ifdef"):
        if lines[at].startswith("/*"):
            end = next(i for i in range(at, len(lines)) if lines[i].endswith("*/")) + 1
            if lines[at].startswith("/* clang-format"):
                at = end
                continue
            if above:
                items.append(Item(above))
            above, at = comment_text("\n".join(lines[at:end])), end
        elif lines[at]:
            item, at = take_declaration(lines, at)
            item.text = (above or []) + item.text
            items.append(item)
            above = None
        else:
            if above:
                items.append(Item(above))
            above, at = None, at + 1
    return items


def read_header(path):
    """The opening comment's lines, the sections as {name: items}, the version."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    opening = comment_text(text[: text.index("*/") + 2])
    parts = re.split(r"^/\* ---- (.+?) -+ \*/$", text, flags=re.M)
    sections = {parts[i]: read_items(parts[i + 1]) for i in range(1, len(parts), 2)}
    if set(sections) != set(PAGES):
        sys.exit(f"man.py: sections without a page, or pages without a section: {set(sections) ^ set(PAGES)}")
    version = ".".join(re.findall(r"#define FIBER_VERSION_\w+ (\d+)", text))
    return opening, sections, version


# ---- Writing roff ----


def escape(text):
    text = text.replace("\\", "\\e").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith(".") else text


def words(text):
    """A line of prose, with what stands out in it."""
    text = escape(text)
    text = re.sub(r"(?<![\w(])-(?=[A-Z1-9])", r"\\-", text.replace("--", "\\-\\-"))
    text = re.sub(r"\\\(ga(.+?)\\\(ga", r"\\fI\1\\fR", text)
    text = re.sub(r"(?<!\w)\*(\w[^*]*\w)\*(?!\w)", r"\\fI\1\\fR", text)
    text = re.sub(r"\b(fiber_\w+)(?=\()", r"\\fB\1\\fR", text)
    return re.sub(r"(\\-E[A-Z]+)\b", r"\\fB\1\\fR", text)


def prose(lines):
    """Paragraphs, bullets (" - ") and verbatim lines (deeper than four spaces)."""
    out, at = [], 0
    while at < len(lines):
        end = at
        while end < len(lines) and re.match(r"\s{4,}\S", lines[end]):
            end += 1
        if end > at:
            out += [*verbatim([line[4:] for line in lines[at:end]]), ".PP"]
            at = end
            continue
        bullet = re.match(r"\s*- (.*)", lines[at])
        out += [".IP \\(bu 2", words(bullet.group(1))] if bullet else [words(lines[at].strip()) or ".PP"]
        at += 1
    while out and out[-1] == ".PP":
        out.pop()
    return out


def code_line(line):
    return escape(line).replace("-", "\\-")


def verbatim(lines):
    return [".PP", ".in +4n", ".EX", *[code_line(line) for line in lines], ".EE", ".in"]


def join(out):
    """The lines, without the paragraphs that begin where one has begun."""
    kept = [line for i, line in enumerate(out) if line != ".PP" or not out[i - 1].startswith((".PP", ".SH"))]
    return "\n".join(kept) + "\n"


PARAMETER = r"(\w+)((?:\[\d*\])?(?: /\*.*?\*/)?[,)])"  # its name, what is behind it


def prototype(item):
    """In bold, its parameters in italics, broken between parameters."""
    start, rest = item.prototype().split("(", 1)
    lines = [start + "("]
    for part in re.findall(r"(?:[^,/]|/\*.*?\*/)+,?", rest):
        if len(lines[-1]) + len(part) > WIDTH:
            lines.append(" " * 8 + part.strip())
        else:
            lines[-1] += part
    marked = [re.sub(PARAMETER, r"\\fI\1\\fB\2", code_line(line)) for line in lines]
    return "\n".join(f"\\fB{line}\\fR" for line in marked).replace("\\fIvoid\\fB", "void")


# ---- A function's comment, taken apart ----


def sentences(lines):
    """The comment in pieces: each a list of lines that are prose together, or one verbatim block."""
    text = " ".join(line.strip() for line in lines)
    # A sentence ends before a capital letter, a code or a quotation, and not within parentheses or quotes.
    return [part for part in re.split(r"(?<=[.!?])(?:(?<=\.\.\.)(?!))? (?=[A-Z\"`*-])", text) if part]


class Manual:
    """What the comment of a function says, by the sections of a page."""

    def __init__(self, item):
        self.name = item.names()[0]
        first = item.text.index("") if "" in item.text else len(item.text)
        parts = sentences(item.text[:first])
        self.more = item.text[first:]
        self.errors = [re.match(r"(-E[A-Z]+): (.*)", part).groups() for part in parts if re.match(r"-E[A-Z]+: ", part)]
        self.returns = [part for part in parts if part.startswith("Returns ")]
        self.prose = [part for part in parts if part not in self.returns and not re.match(r"-E[A-Z]+: ", part)]

    def summary(self):
        first = self.prose[0].rstrip(".")
        cut = re.split(r"[;:] (?![^(]*\))", first)[0]
        return cut[0].lower() + cut[1:]

    def return_value(self, item):
        if re.match(r"void [^*]", item.prototype()):
            return []
        if item.prototype().startswith("int ") or item.prototype().startswith("int64_t "):
            usual = ["A negative errno on failure, and", "\\fBfiber_last_error\\fR(3) says why."]
            return (self.returned() or ["0 on success."]) + usual
        return self.returned()

    def returned(self):
        said = " ".join(self.returns).removeprefix("Returns ")
        return [words(said[0].upper() + said[1:])] if said else []


# ---- Examples ----


def window(lines, at, most=14):
    """The lines of the paragraph around line `at`, or those nearest to it, without their common indent."""
    first = last = at
    while first > 0 and lines[first - 1].strip() and last - first < most - 4:
        first -= 1
    while last + 1 < len(lines) and lines[last + 1].strip() and last - first < most:
        last += 1
    shown = lines[first : last + (lines[last] != "}")]  # not the end of its function
    indent = min(len(line) - len(line.lstrip()) for line in shown)
    return [line[indent:] for line in shown]


def find_example(name, examples):
    for path in examples:
        with open(path, encoding="utf-8") as f:
            lines = f.read().split("\n")
        for at, line in enumerate(lines):
            if re.search(rf"\b{name}\(", line) and not line.startswith((" *", "/*")):
                return os.path.basename(path), window(lines, at)
    sys.exit(f"man.py: no example calls {name}()")


# ---- Pages ----


def head(name, section, version, date, source="fiber.h"):
    return [f'.\\" Written by docs/man.py out of {source}; change that.', f'.TH {name} {section} {date} "fiber {version}"']


def see_also(names):
    return [".SH SEE ALSO", *[f".BR {other} (3)," for other in names], ".BR fiber (7)"]


def function_page(section, item, version, date, examples):
    if not item.text:
        sys.exit(f"man.py: {item.names()[0]}() has no comment")
    manual = Manual(item)
    out = head(manual.name, 3, version, date) + [".SH NAME", f"{manual.name} \\- {escape(manual.summary())}"]
    out += [".SH SYNOPSIS", ".nf", "\\fB#include <fiber.h>\\fR", "", prototype(item), ".fi", ".SH DESCRIPTION"]
    out += [words(part) for part in manual.prose] + prose(manual.more)
    if manual.return_value(item):
        out += [".SH RETURN VALUE", *manual.return_value(item)]
    if item.prototype().startswith("int "):
        out += [".SH ERRORS"]
        for code, meaning in manual.errors:
            out += [".TP", words(code), words(meaning[0].upper() + meaning[1:])]
        out += [".PP", "Errors that every call has are in", ".BR fiber (7)."]
    file, lines = find_example(manual.name, examples)
    out += [".SH EXAMPLE", f"From examples/{escape(file)}:", *verbatim(lines)]
    named = re.findall(r"\b(fiber_\w+)\(\)", " ".join(item.text))
    return join(out + see_also(sorted({PAGES[section][0], *named} - {manual.name})))


def page(section, items, version, date):
    name, about = PAGES[section]
    functions = [item for item in items if item.kind() == "function"]
    out = head(name, 3, version, date) + [".SH NAME", f"{name} \\- {escape(about)}", ".SH SYNOPSIS", ".nf"]
    out += ["\\fB#include <fiber.h>\\fR"]
    for item in functions:
        out += ["", prototype(item)] if item is functions[0] else [prototype(item)]
    out += [".fi", ".SH DESCRIPTION"]
    for item in items:
        if item.kind() in ("comment", "opaque") and item.text:
            out += [".PP", *prose(item.text)]
    for item in items:
        if item.kind() in ("type", "macro"):
            out += [".PP", *prose(item.text), *verbatim(item.code.split("\n"))]
    if functions:
        out += [".SH CALLS"]
    for item in functions:
        summary = Manual(item).summary()
        out += [".TP", f".BR {item.names()[0]} (3)", words(summary[0].upper() + summary[1:] + ".")]
    return join(out + see_also(sorted(page for page, _ in PAGES.values() if page != name)))


def overview(opening, version, date):
    name, about = re.match(r"fiber\.h - (.*)", opening[0].strip()).group(1).split(":", 1)
    out = head("fiber", 7, version, date) + [".SH NAME", f"fiber \\- {escape(name)}", ".SH SYNOPSIS", "\\fB#include <fiber.h>\\fR"]
    out += [".PP", "\\fBcc ... $(pkg\\-config \\-\\-cflags \\-\\-libs fiber)\\fR", ".SH DESCRIPTION", words(about.strip().capitalize())]
    out += prose([line for line in opening[1:] if "SPDX" not in line])
    out += [".SH PAGES"]
    for section_page, section_about in PAGES.values():
        out += [".TP", f".BR {section_page} (3)", escape(section_about)]
    return join(out)


FILES = """The configuration of Fiber: lines of the form
.IP
key = value
.PP
where # or ; begins a comment, at the beginning of a line or after a blank. A setting is
looked for in this order; the first that has it counts:
.IP \\(bu 2
options of the command
.BR fiber (1)
and calls of
.BR fiber_config_set (3)
.IP \\(bu 2
the environment: the variable that stands with each key
.IP \\(bu 2
\\fI./.fiberconfig\\fR, if it is the user's or root's and not everyone may write it
.IP \\(bu 2
\\fI$XDG_CONFIG_HOME/fiber/fiber.conf\\fR, else \\fI\\(ti/.config/fiber/fiber.conf\\fR
.IP \\(bu 2
\\fI/etc/fiber/fiber.conf\\fR
.PP
Children of a program get its settings.
.BR "fiber config"
shows each value and where it is from. Times are written as 200ms, 5s, 2m or 1h, sizes as 64Ki, 8Mi or 2Gi."""


def settings_page(settings, version, date):
    out = head("fiber.conf", 5, version, date) + [".SH NAME", "fiber.conf \\- settings of Fiber", ".SH DESCRIPTION", FILES]
    out += [".SH SETTINGS"]
    for one in settings:
        default = one["default"] or "empty"
        out += [".TP", f"\\fB{code_line(one['key'])}\\fR = {code_line(default)}", words(one["help"])]
        if one["values"]:
            out += [".br", "One of: " + words(one["values"]) + "."]
        out += [".br", "Variable: " + words(one["variable"])]
    out += [".SH EXAMPLES", *verbatim(["backend = slurm", "slurm_partition = gpu", "heartbeat = 2s"])]
    out += [".SH SEE ALSO", ".BR fiber (1),", ".BR fiber\\-config (1),", ".BR fiber (7)"]
    return join(out)


# ---- Pages of the command ----


def columns(lines):
    """A list in two columns as [left, right]; further lines of the right one are indented more than the left ones."""
    rows = []
    for line in lines:
        if line.startswith(" " * 12):
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
        else:
            left, _, right = line.strip().partition("  ")
            rows.append([left, right.strip()])
    return rows


def spellings(lines):
    """The options of other launchers, whose meanings are indented more, as [names, meaning]."""
    rows = []
    for line in lines:
        meaning = line.startswith(" " * 6)
        if not meaning and (not rows or rows[-1][1]):
            rows.append(["", ""])
        rows[-1][meaning] = f"{rows[-1][meaning]} {line.strip()}".strip()
    return rows


def tagged(rows):
    return [line for left, right in rows for line in (".TP", f".B {code_line(left)}", code_line(right) or "\\&")]


def block(text):
    """A paragraph of a page of help, or a list with its title."""
    lines = text.split("\n")
    if text.startswith("  "):
        return [".PP", ".nf", *map(code_line, lines), ".fi"]
    if lines[0] in TITLES:
        return [f".SH {TITLES[lines[0]]}", *tagged(columns(lines[1:]))]
    return [".PP", code_line(" ".join(lines))]


def command_see_also(names):
    return [".SH SEE ALSO", *[f".BR {code_line(name)} (1)," for name in names], ".BR fiber (7)"]


def command_page(name, names, text, others, version, date):
    usage, about, *blocks = text.strip().split("\n\n")
    out = head(name, 1, version, date, "fiber help") + [".SH NAME", f"{code_line(name)} \\- {code_line(about[:-1])}"]
    out += [".SH SYNOPSIS", f"\\fB{code_line(usage.removeprefix('Usage: '))}\\fR", ".SH DESCRIPTION"]
    if not blocks or blocks[0].split("\n")[0] in TITLES:
        out += [code_line(about)]
    for one in blocks:
        out += block(one)
    if others:
        title, rows = others.strip().split("\n\n")
        out += [".SH OTHER SPELLINGS", code_line(title.replace("\n", " ")), *tagged(spellings(rows.split("\n")))]
    return join(out + command_see_also(["fiber", *[other for other in names if other != name]]))


def command_pages(command, folder, version, date):
    def ask(*args):
        return subprocess.run([*command, "help", *args], stdout=subprocess.PIPE, check=True, text=True).stdout

    usage, about, commands, _ = ask().strip().split("\n\n")
    rows = [[f"fiber-{name}", text] for name, text in columns(commands.split("\n"))]
    names = [name for name, _ in rows]
    out = head("fiber", 1, version, date, "fiber help") + [".SH NAME", "fiber \\- run programs on a cluster"]
    out += [".SH SYNOPSIS", f"\\fB{code_line(usage.removeprefix('Usage: '))}\\fR", ".SH DESCRIPTION", code_line(about)]
    out += [".SH SUBCOMMANDS"]
    for name, text in rows:
        out += [".TP", f".BR {code_line(name)} (1)", code_line(text)]
    write(folder, "fiber", 1, join(out + command_see_also(names)))
    for name in names:
        word = name.removeprefix("fiber-")
        others = ask("mpirun") if word == "run" else ""
        write(folder, name, 1, command_page(name, names, ask(word), others, version, date))


def write(folder, name, section, text):
    os.makedirs(os.path.join(folder, f"man{section}"), exist_ok=True)
    with open(os.path.join(folder, f"man{section}", f"{name}.{section}"), "w", encoding="utf-8") as f:
        f.write(text)


def main():
    mode = sys.argv[1] if sys.argv[1].startswith("--") else None
    header, folder, *rest = sys.argv[3 if mode == "--settings" else 2 if mode else 1 :]
    opening, sections, version = read_header(header)
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", os.path.getmtime(header)))
    date = time.strftime("%Y-%m-%d", time.gmtime(stamp))
    if mode == "--settings":
        with open(sys.argv[2], encoding="utf-8") as f:
            write(folder, "fiber.conf", 5, settings_page(json.load(f), version, date))
        return
    if mode == "--command":
        command_pages(rest, folder, version, date)
        return
    examples = sorted(rest, key=os.path.getsize)  # the shortest makes the plainest example
    write(folder, "fiber", 7, overview(opening, version, date))
    for section, items in sections.items():
        name = PAGES[section][0]
        for item in items:
            for link in item.names():
                write(folder, link, 3, f".so man3/{name}.3\n")
        write(folder, name, 3, page(section, items, version, date))
        for item in items:
            if item.kind() == "function" and item.names()[0] != name:
                write(folder, item.names()[0], 3, function_page(section, item, version, date, examples))


main()
