"""The parts of the reference that are made when the pages are built: each directive inserts Markdown that a function of
`reference_names`, `reference_commands` or of this module makes of the installed benchax.

    ```{names} bench benchmark        public names, by their docstrings
    ```{name-index}                   a table of all of them
    ```{commands} run grid            commands, by their own help
    ```{options}                      a table of all options, and of who has them
    ```{rules}                        a table of all rules
    ```{rule} key-reuse               the question of a rule, and its advice if all of its findings have the same
    ```{remarks}                      a table of all codes of remarks
    ```{failures}                     why a case has no numbers
    ```{variants}                     a table of all variants of experiments
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from docstrings import escape
from docutils import nodes
from reference_commands import render_command, render_options
from reference_names import render_index, render_name
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from benchax.auditing.audit import SUPPRESSION
from benchax.auditing.rules import rules
from benchax.codes import FAILURES, REMARKS
from benchax.experiments.variants import VARIANTS


def render_rules(_: Sequence[str]) -> str:
    lines = ["| rule | asks | of | severity |", "|---|---|---|---|"]
    for each in rules().values():
        of = {"function": "a function", "program": "a program", "both": "both"}[each.of]
        lines.append(f"| [{each.id}]({each.id}.md) | {each.title} | {of} | {each.severity} |")
    lines.append(f"| [{SUPPRESSION}]({SUPPRESSION}.md) | has every silenced finding a reason? | both | warning |")
    return "\n".join(lines)


def render_remarks(_: Sequence[str]) -> str:
    rows = [f"| `{code}` | {of.severity} | {escape(of.text)} | {of.said_by} |" for code, of in sorted(REMARKS.items())]
    return "\n".join(["| code | severity | means | said by |", "|---|---|---|---|", *rows])


def render_failures(_: Sequence[str]) -> str:
    return "\n".join(["| kind | means |", "|---|---|", *(f"| `{kind}` | {text} |" for kind, text in FAILURES.items())])


def render_rule(words: Sequence[str]) -> str:
    each = rules()[words[0]]
    of = {"function": "a function", "program": "a program", "both": "a function or a program"}[each.of]
    pack = f" It's in the pack `{each.pack}`." if each.pack else ""
    advice = f"\n\nIts advice: {escape(each.advice)}" if each.advice else ""
    return f"*Asks of {of}: {each.title}* Severity: {each.severity}.{pack}{advice}"


def render_variants(_: Sequence[str]) -> str:
    lines = ["| variant | does |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {each.title} |" for name, each in VARIANTS.items())])


class Generated(SphinxDirective):
    """Inserts what `render` makes of the words behind the directive's name."""

    optional_arguments = 1
    final_argument_whitespace = True
    render: ClassVar[Callable[[Sequence[str]], str]]

    def run(self) -> list[nodes.Node]:
        words = self.arguments[0].split() if self.arguments else []
        # A changed docstring or help text builds the page anew.
        self.env.note_reread()
        return self.parse_text_to_nodes(type(self).render(words), allow_section_headings=True)


RENDERERS: dict[str, Callable[[Sequence[str]], str]] = {
    "names": lambda words: "\n\n".join(render_name(word) for word in words),
    "name-index": lambda _: render_index(),
    "commands": lambda words: "\n\n".join(render_command(word) for word in words),
    "options": lambda _: render_options(),
    "rules": render_rules,
    "rule": render_rule,
    "remarks": render_remarks,
    "failures": render_failures,
    "variants": render_variants,
}


def setup(app: Sphinx) -> dict[str, Any]:
    for name, render in RENDERERS.items():
        app.add_directive(name, type(name.title(), (Generated,), {"render": staticmethod(render)}))
    return {"parallel_read_safe": True}
