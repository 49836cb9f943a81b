"""AWS_MSK_IAM: tokens of OAUTHBEARER for Amazon MSK, signed with AWS credentials by Amazon's published signer.

The package `aws-msk-iam-sasl-signer-python` finds the credentials and signs; here are its options and the region.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from kafkaprod.clock import wall_s
from kafkaprod.config.oauth_options import OAuthOptions
from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security.oauthbearer import BearerToken

_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


def region_of(options: OAuthOptions) -> str:
    """Return the region of a cluster: the option's, the first bootstrap server's, or the environment's.

    Raises:
        ConfigError: None of them has one.
    """
    host = _HOST.search(options.bootstrap_servers[0][0])
    region = options.sasl_aws_region or (host and host[1]) or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError("sasl_mechanism=AWS_MSK_IAM needs sasl_aws_region: no bootstrap server's name has a region")
    return region


def token_fetcher(options: OAuthOptions, now_s: Callable[[], float] = wall_s) -> Callable[[], BearerToken]:
    """Return what signs a token.

    Raises:
        ConfigError: The signer is not installed, or the region is not known.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
    except ImportError:
        raise ConfigError("sasl_mechanism=AWS_MSK_IAM needs a package: pip install 'kafkaprod[msk]'") from None
    region = region_of(options)

    def fetch() -> BearerToken:
        try:
            token, end_ms = _sign(signer, options, region)
        except Exception as error:
            raise AuthenticationError(
                f"AWS_MSK_IAM: no token could be signed for {region}: {type(error).__name__}: {error}"
            ) from None
        return BearerToken(token, {}, max(end_ms / 1000 - now_s(), 0.0))

    return fetch


def _sign(signer: Any, options: OAuthOptions, region: str) -> tuple[str, int]:
    if options.sasl_aws_role_arn is not None:
        session = [name for name in (options.sasl_aws_role_session_name,) if name is not None]
        signed = signer.generate_auth_token_from_role_arn(region, options.sasl_aws_role_arn, *session)
    elif options.sasl_aws_profile is not None:
        signed = signer.generate_auth_token_from_profile(region, options.sasl_aws_profile)
    else:
        signed = signer.generate_auth_token(region)
    token, end_ms = signed
    return str(token), int(end_ms)
