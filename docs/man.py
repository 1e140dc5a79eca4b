"""man.py - writes the man pages out of include/fiber.h: docs/man.py <header> <folder> [<program>...]
and fiber.conf(5) out of `fiber config show --json`:     docs/man.py --settings <file> <header> <folder>

The header is the manual; nothing is said here that it does not say. Each of its sections (`/* ---- Queue ---- */`) is
a page of man3, named in PAGES; each function and type of it is a link to that page. The comment that the header opens
with is fiber(7). What the pages are made of:

    SYNOPSIS     the prototypes
    DESCRIPTION  the comments that stand alone or at a type without a body, then everything else that has a comment,
                 in the header's order
    ERRORS       what the comments say of each code
    EXAMPLES     the first call of each function in the programs that are given

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import sys
import time

# section of the header -> page, what it is about
PAGES = {
    "The library": ("fiber_init", "join a process to Fiber, configure it, errors and memory"),
    "Processes": ("fiber_process", "job-backed processes"),
    "Addresses": ("fiber_address", "where a queue, a pipe's end, a manager or a store lives"),
    "Queue": ("fiber_queue", "messages between processes, many senders and receivers"),
    "Pipe": ("fiber_pipe", "a connection between two ends in any two processes"),
    "Manager": ("fiber_manager", "a process that owns a state and runs methods on it"),
    "Store": ("fiber_store", "shared state: dictionary, lists, counters, locks"),
    "Host-shared memory": ("fiber_shared", "memory that the processes of a host share"),
    "Pool": ("fiber_pool", "an elastic set of worker processes that share one task list"),
    "Ring": ("fiber_ring", "ranks of an MPI, torch.distributed or plain program, booted and pinned"),
    "Waiting for several things": ("fiber_wait_any", "wait for queues, pipes, processes, results and others at once"),
}
WIDTH = 78  # of a prototype


class Item:
    """A declaration with its comments, or (code empty) a comment that stands alone."""

    def __init__(self, text, code=""):
        self.text, self.code = text, code

    def kind(self):
        for kind, start in (("function", r"FIBER_API"), ("opaque", r"struct \w+;"), ("type", r"struct|typedef"),
                            ("macro", r"#define")):
            if re.match(start, self.code):
                return kind
        return "comment"

    def names(self):
        """What of it gets a link: the function, the type."""
        if self.kind() == "function":
            return re.findall(r"\b(fiber_\w+)\(", self.code)[:1]
        return re.findall(r"(?:^struct |^typedef .*\(\*)(fiber_\w+)", self.code)

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
        if re.match(r"/\* clang-format o(n|ff) \*/", lines[at]):
            at += 1
        elif lines[at].startswith("/*"):
            end = next(i for i in range(at, len(lines)) if lines[i].endswith("*/")) + 1
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


def short_form(item):
    """Its name and those of its parameters."""
    start, rest = item.prototype().split("(", 1)
    names = [name for name, _ in re.findall(PARAMETER, rest) if name != "void"]
    return f"\\fB{item.names()[0]}\\fR(" + ", ".join(f"\\fI{name}\\fR" for name in names) + ")"


def head(name, section, version, date):
    return ['.\\" Written by docs/man.py out of fiber.h; change that.', f'.TH {name} {section} {date} "fiber {version}"']


def page(section, items, version, date, programs):
    name, about = PAGES[section]
    functions = [item for item in items if item.kind() == "function"]
    names = [item.names()[0] for item in functions] or [name]
    out = head(name, 3, version, date) + [".SH NAME", ", ".join(names) + f" \\- {escape(about)}", ".SH SYNOPSIS", ".nf"]
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
        elif item.kind() == "function" and item.text:
            out += [".TP", short_form(item), *prose(item.text)]
    out += [".SH RETURN VALUE", "Where nothing else is said: 0, or a negative errno, and", "\\fBfiber_last_error\\fR(3) says why."]
    found = errors(functions)
    if found:
        out += [".SH ERRORS", "Any call may return \\fB\\-EINVAL\\fR for arguments that make no sense and \\fB\\-ENOMEM\\fR.", *found]
    shown = examples(functions, programs)
    if shown:
        out += [".SH EXAMPLES", *shown]
    others = sorted(page for page, _ in PAGES.values() if page != name)
    out += [".SH SEE ALSO", *[f".BR {other} (3)," for other in others], ".BR fiber (7)"]
    return join(out)


# ---- Errors and examples ----


def errors(functions):
    """The codes that the comments of functions name, each with what is said of it."""
    codes = {}
    for item in functions:
        for sentence in re.split(r"(?<=[.;])\s+", " ".join(item.text)):
            for code in dict.fromkeys(re.findall(r"-(E[A-Z0-9]+)", sentence)):
                says = re.sub(rf"^-{code}:?\s+|[.;]$", "", sentence.strip())
                codes.setdefault(code, []).append((item.names()[0], "" if says == f"-{code}" else says))
    out = []
    for code in sorted(codes):
        out += [".TP", f".B \\-{code}"]
        for at, (name, says) in enumerate(codes[code]):
            out += [".br"] * (at > 0) + [f"\\fB{name}\\fR()" + (": " + words(says) if says else "")]
    return out


def call_of(name, programs):
    """The statement of the first call in a program, as lines; None."""
    for path, lines in programs:
        for at, line in enumerate(lines):
            if not re.search(rf"\b{name}\(", line) or re.match(r"\s*(/?\*|//)", line):
                continue
            end = at
            while end + 1 < min(len(lines), at + 5) and not re.search(r"[;{}]\s*(/\*.*\*/)?$", lines[end]):
                end += 1
            shift = len(line) - len(line.lstrip())
            return [f"/* {path} */", *[part[shift:] if not part[:shift].strip() else part for part in lines[at : end + 1]]]
    return None


def read_programs(paths):
    programs = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            programs.append((os.path.join(*path.split(os.sep)[-2:]), f.read().split("\n")))
    return programs


def examples(functions, programs):
    calls = [call for call in (call_of(item.names()[0], programs) for item in functions) if call]
    return [line for call in calls for line in verbatim(call)]


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
where # begins a comment. A setting is looked for in this order; the first that has it counts:
.IP \\(bu 2
options of the command
.BR fiber (1)
and calls of
.BR fiber_config_set (3)
.IP \\(bu 2
the environment: the variable that stands with each key
.IP \\(bu 2
\\fI./.fiberconfig\\fR, if it is the user's and nobody else may write it
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


def write(folder, name, section, text):
    os.makedirs(os.path.join(folder, f"man{section}"), exist_ok=True)
    with open(os.path.join(folder, f"man{section}", f"{name}.{section}"), "w", encoding="utf-8") as f:
        f.write(text)


def main():
    settings = sys.argv[2] if sys.argv[1] == "--settings" else None
    header, folder, *paths = sys.argv[3 if settings else 1 :]
    programs = read_programs(paths)
    opening, sections, version = read_header(header)
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", os.path.getmtime(header)))
    date = time.strftime("%Y-%m-%d", time.gmtime(stamp))
    if settings:
        with open(settings, encoding="utf-8") as f:
            write(folder, "fiber.conf", 5, settings_page(json.load(f), version, date))
        return
    write(folder, "fiber", 7, overview(opening, version, date))
    for section, items in sections.items():
        for item in items:
            for name in item.names():
                write(folder, name, 3, f".so man3/{PAGES[section][0]}.3\n")
        write(folder, PAGES[section][0], 3, page(section, items, version, date, programs))


main()
