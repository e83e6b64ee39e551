"""Links that nobody writes: from types of parameters to their pages, from the first use of a term to the glossary."""

import re

from docutils import nodes

from extension import names

UNLINKED = (nodes.reference, nodes.title, nodes.literal, nodes.table, nodes.math, nodes.rubric)


def link_types(app, doctree, page):
    """Link the names in types of parameters, attributes and results."""
    known = {**names.OTHERS, **dict.fromkeys(names.pages())}
    for node in list(doctree.findall(nodes.classifier)):
        parts = names.pieces(node.astext(), known)
        node.children = []
        for part in parts:
            node += nodes.Text(part) if isinstance(part, str) else _type_link(app, page, part[0])


def _type_link(app, page, name):
    target = names.OTHERS.get(name) or app.builder.get_relative_uri(page, names.pages()[name])
    return nodes.reference(name, name, refuri=target, internal=name not in names.OTHERS)


def link_terms(app, doctree, page):
    """Give the glossary's terms their anchors; link the first use of each in a guide."""
    if page == "glossary":
        for node in doctree.findall(nodes.term):
            node["ids"].append(names.id_of(node.astext()))
    if not page.startswith("guide/"):
        return
    left = dict(names.terms())
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in [child for child in paragraph.findall(nodes.Text) if not _is_unlinked(child)]:
            _link_first_uses(app, page, text, left)


def _is_unlinked(text):
    parent = text.parent
    while parent is not None:
        if isinstance(parent, UNLINKED):
            return True
        parent = parent.parent
    return False


def _link_first_uses(app, page, text, left):
    """Put links into a text, and take the terms that have one now out of those that are left."""
    made, rest = [], text.astext()
    while found := re.search(rf"(?i)\b({'|'.join(map(re.escape, left)) or '(?!)'})(?=s?\b)", rest):
        target = f"{app.builder.get_relative_uri(page, 'glossary')}#{left.pop(found[1].lower())}"
        made += [nodes.Text(rest[: found.start()])]
        made += [nodes.reference(found[1], found[1], refuri=target, internal=True, classes=["term"])]
        rest = rest[found.end() :]
    if made:
        text.parent.replace(text, [*made, nodes.Text(rest)])


def setup(app):
    """Link when references are resolved."""
    app.connect("doctree-resolved", link_types)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
