"""Identifiers from settings in one dictionary: constructor arguments and options together."""

from skident import IdentifierOptions, NetworkIdentifier

OPTIONS = set(IdentifierOptions().get_params(deep=False))


def make_identifier(*model, **settings):
    """A `NetworkIdentifier` whose options are among the settings; of one hidden layer, which is fast, by default."""
    settings.setdefault("layer_widths", None)
    chosen = {name: settings.pop(name) for name in OPTIONS & settings.keys()}
    return NetworkIdentifier(*model, **settings, options=IdentifierOptions(**chosen) if chosen else None)
