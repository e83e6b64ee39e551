from . import (
    audit as audit,
)
from . import (
    compression as compression,
)
from . import (
    datasets as datasets,
)
from . import (
    hierarchical as hierarchical,
)
from . import (
    identification as identification,
)
from . import (
    inspection as inspection,
)
from . import (
    landscape as landscape,
)
from . import (
    linalg as linalg,
)
from . import (
    metrics as metrics,
)
from . import (
    network as network,
)
from . import (
    optim as optim,
)
from . import (
    oracle as oracle,
)
from . import (
    saddle as saddle,
)
from . import (
    samples as samples,
)
from .audit import NetworkVerifier as NetworkVerifier
from .audit import verify_same as verify_same
from .budget import config_context as config_context
from .budget import get_config as get_config
from .budget import set_config as set_config
from .compression import NetworkCompressor as NetworkCompressor
from .hierarchical import HierarchicalQuadraticNet as HierarchicalQuadraticNet
from .hierarchical import HierarchicalQuadraticNetClassifier as HierarchicalQuadraticNetClassifier
from .identification import EntangledWeightExtractor as EntangledWeightExtractor
from .identification import IdentifierOptions as IdentifierOptions
from .identification import NetworkCompletion as NetworkCompletion
from .identification import NetworkIdentifier as NetworkIdentifier
from .landscape import QuadraticNetClassifier as QuadraticNetClassifier
from .landscape import QuadraticNetRegressor as QuadraticNetRegressor
from .landscape import landscape_certificate as landscape_certificate
from .landscape import phase_transition as phase_transition
from .network import FeedforwardNetwork as FeedforwardNetwork
from .network import align_modules as align_modules
from .saddle import SaddleEscapeAnalyzer as SaddleEscapeAnalyzer
from .saddle import SaddleToSaddleClassifier as SaddleToSaddleClassifier
from .saddle import SaddleToSaddleRegressor as SaddleToSaddleRegressor
from .samples import PassiveNetworkIdentifier as PassiveNetworkIdentifier
from .samples import TensorReLURegressor as TensorReLURegressor

__version__: str
