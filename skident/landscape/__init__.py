"""Has training reached a global optimum? Certificates for shallow networks, and solvers that reach one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "certificate": ["CertificateOptions", "LandscapeCertificate"],
        "certify": ["landscape_certificate"],
        "classifier": ["QuadraticNetClassifier", "Separation"],
        "curvature": ["descent_rate"],
        "losses": ["HuberLoss"],
        "problem": ["LossTerms"],
        "regressor": ["QuadraticNetRegressor"],
        "phase_transitions": ["PhaseTransition", "TrainingTrials", "phase_transition"],
    },
)
