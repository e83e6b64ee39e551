"""Formulas as MathML, written when the site is built: browsers draw them, no script and no network is needed."""

from docutils import nodes
from docutils.utils.math import latex2mathml


def formula(node, as_block):
    """MathML of a formula in TeX."""
    return latex2mathml.tex2mathml(node.astext(), as_block=as_block)


def visit_inline(translator, node):
    """Write a formula in a line."""
    translator.body.append(formula(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    """Write a formula on lines of its own."""
    translator.body.append(f'<div class="formula">{formula(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Announce the renderer, and choose it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
