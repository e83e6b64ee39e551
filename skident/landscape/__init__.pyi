from .certificate import CertificateOptions as CertificateOptions
from .certificate import LandscapeCertificate as LandscapeCertificate
from .certify import landscape_certificate as landscape_certificate
from .problem import LossTerms as LossTerms
from .regressor import QuadraticNetRegressor as QuadraticNetRegressor
from .transition import (
    PhaseTransition as PhaseTransition,
)
from .transition import (
    TrainingTrials as TrainingTrials,
)
from .transition import (
    phase_transition as phase_transition,
)

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
