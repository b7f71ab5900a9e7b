"""An identity provider: it signs tokens, and has a document of its public keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://id.example.org/realm"
AUDIENCE = "holdfast"


def part(value: object) -> str:
    """Return a part of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs with an EC key, or with an RSA key if it is asked."""

    def __init__(self, *, bits: int = 0, kid: str = "k1") -> None:
        self.kid = kid
        self.key: PrivateKeyTypes = (
            rsa.generate_private_key(public_exponent=65_537, key_size=bits)
            if bits
            else ec.generate_private_key(ec.SECP256R1())
        )
        self.algorithm = "RS256" if bits else "ES256"

    def jwk(self, **more: object) -> dict[str, object]:
        """Return the public key."""
        if isinstance(self.key, rsa.RSAPrivateKey):
            found = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        else:
            assert isinstance(self.key, ec.EllipticCurvePrivateKey)
            found = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        found.pop("key_ops", None)
        return {**found, "kid": self.kid, "use": "sig", **more}

    def document(self, *others: Issuer) -> str:
        """Return the JSON Web Key Set."""
        return json.dumps({"keys": [one.jwk() for one in (self, *others)]})

    def settings(self, place: str) -> dict[str, str]:
        """Return the settings of an API that takes its tokens."""
        return {
            "api_oidc_issuer": ISSUER,
            "api_oidc_audience": AUDIENCE,
            "api_oidc_jwks": place,
            "api_oidc_roles": "ops=operator,boss=admin,look=viewer",
        }

    def claims(self, **changes: object) -> dict[str, object]:
        """Return the claims of a good token with these changes; None: without it."""
        now = int(time.time())
        found = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ann",
            "exp": now + 600,
            "roles": ["ops", "cooks"],
            "tenants": ["acme"],
            **changes,
        }
        return {name: value for name, value in found.items() if value is not None}

    def token(
        self,
        more: Mapping[str, object] | None = None,
        *,
        kid: str = "",
        algorithm: str = "",
        **changes: object,
    ) -> str:
        """Return a token."""
        header = {"kid": kid or self.kid}
        claims = self.claims(**(more or {}), **changes)
        # Claims of wrong types are signed too, which PyJWT itself refuses.
        payload = json.dumps(claims).encode()
        return jwt.api_jws.encode(payload, self.key, algorithm or self.algorithm, header)  # type: ignore[arg-type]

    def token_without_signature(self) -> str:
        """Return a token of the algorithm ``none``."""
        return f"{part({'alg': 'none', 'kid': self.kid})}.{part(self.claims())}."

    def token_by_public_key(self) -> str:
        """Return a token whose HMAC has the public key, which everybody knows, as its secret."""
        assert isinstance(self.key, rsa.RSAPrivateKey)
        secret = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        text = f"{part({'alg': 'HS256', 'kid': self.kid})}.{part(self.claims())}"
        return f"{text}.{part(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"
