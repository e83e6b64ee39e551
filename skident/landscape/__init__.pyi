from .certificate import CertificateOptions as CertificateOptions
from .certificate import LandscapeCertificate as LandscapeCertificate
from .certify import landscape_certificate as landscape_certificate
from .phase_transitions import (
    PhaseTransition as PhaseTransition,
)
from .phase_transitions import (
    TrainingTrials as TrainingTrials,
)
from .phase_transitions import (
    phase_transition as phase_transition,
)
from .problem import LossTerms as LossTerms
from .regressor import QuadraticNetRegressor as QuadraticNetRegressor

__all__ = [
    "CertificateOptions",
    "LandscapeCertificate",
    "LossTerms",
    "PhaseTransition",
    "QuadraticNetRegressor",
    "TrainingTrials",
    "landscape_certificate",
    "phase_transition",
]
