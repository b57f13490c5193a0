#!/usr/bin/python3
"""Stands in for slapd and slapadd, so that programs that start these are served by Sapwood.

Called slapadd, it makes a directory of the olcSuffix, olcRootDN, olcRootPW and certificates of a configuration that
comes with -n0, and adds schema files to it that Sapwood does not have built in. Called slapd, it serves that. The
variable SAPWOOD names the program.
"""

import json
import os
import re
import subprocess
import sys

SAPWOOD = os.environ["SAPWOOD"]
BUILT_IN = {"core", "cosine", "inetorgperson", "nis", "ppolicy", "dyngroup", "collective"}


def value(ldif, name):
    found = re.search(rf"^{name}: (.*)$", ldif, re.MULTILINE)
    return found and found.group(1)


def folder(arguments):
    return os.path.join(arguments[arguments.index("-F") + 1], "sapwood")


def apply(directory, ldif):
    path = directory + ".ldif"
    with open(path, "w") as file:
        file.write(ldif)
    subprocess.run([SAPWOOD, "config", directory, "apply", path], check=True, stdout=subprocess.DEVNULL)


def slapadd(arguments):
    directory = folder(arguments)
    if "-l" in arguments:
        path = arguments[arguments.index("-l") + 1]
        if os.path.basename(path).split(".")[0] not in BUILT_IN:
            with open(path) as file:
                apply(directory, file.read())
        return
    ldif = sys.stdin.read()
    if os.path.exists(directory):
        apply(directory, ldif)
        return
    password = directory + ".password"
    with open(os.open(password, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(value(ldif, "olcRootPW") + "\n")
    subprocess.run(
        [SAPWOOD, "init", directory, "--suffix", value(ldif, "olcSuffix"), "--admin-dn", value(ldif, "olcRootDN"),
         "--admin-password-file", password], check=True, stdout=subprocess.DEVNULL)
    path = os.path.join(directory, "sapwood.toml")
    with open(path) as file:
        text = file.read()
    settings = {
        "cert": value(ldif, "olcTLSCertificateFile"),
        "key": value(ldif, "olcTLSCertificateKeyFile"),
        "client_ca": value(ldif, "olcTLSCACertificateFile"),
        "client_certificates": value(ldif, "olcTLSVerifyClient"),
        "client_identity": ["name:{subject}"],
    }
    for name, given in settings.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {json.dumps(given)}", text, flags=re.MULTILINE)
    with open(path, "w") as file:
        file.write(text)
    # The others have a URL that is none.
    regexps = re.findall(r"^olcAuthzRegexp: (?!.*ldap://[^/]).*$", ldif, re.MULTILINE)
    apply(directory, "\n".join(["dn: cn=config", "changetype: modify", "add: olcAuthzRegexp", *regexps, ""]))
    if "olcOverlay: syncprov" in ldif:
        subprocess.run([SAPWOOD, "replica", "enable", directory, "--sid", "1"], check=True)


def slapd(arguments):
    if "-Ttest" in arguments:
        return
    urls = arguments[arguments.index("-h") + 1].split()
    listen = [word for url in urls for word in ("--listen", url.rstrip("/"))]
    os.execv(SAPWOOD, [SAPWOOD, "serve", folder(arguments), *listen])


if os.path.basename(sys.argv[0]) == "slapadd":
    slapadd(sys.argv[1:])
else:
    slapd(sys.argv[1:])
