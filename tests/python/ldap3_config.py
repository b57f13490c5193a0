"""What the tests of ldap3 ask of test/config.py, which its sdist does not have: the server, its users, and how entries
are made. LDAP_PORT, LDAPS_PORT and LDAP_CA say where Sapwood listens."""

import os
import random
import string

import ldap3

test_server = "127.0.0.1"
test_port = int(os.environ["LDAP_PORT"])
test_port_ssl = int(os.environ["LDAPS_PORT"])
test_server_type = "SLAPD"
test_strategy = os.environ.get("LDAP3_STRATEGY", ldap3.SYNC)
test_server_mode = ldap3.IP_SYSTEM_DEFAULT
test_pooling_strategy = ldap3.ROUND_ROBIN
test_pooling_active = 20
test_pooling_exhaust = 15
test_lazy_connection = False
test_authentication = ldap3.SIMPLE
test_get_info = ldap3.ALL
test_check_names = True
test_auto_escape = True
test_auto_encode = True
test_internal_decoder = True
test_validator = {}
test_logging = False
test_server_context = test_server_edir_name = test_root_partition = ""
test_base = "ou=fixtures,dc=example,dc=com"
test_moved = "ou=moved,dc=example,dc=com"
test_name_attr = "cn"
test_int_attr = "gidNumber"
test_multivalued_attribute = "givenname"
test_singlevalued_attribute = "employeeNumber"
test_user = test_secondary_user = "cn=admin,dc=example,dc=com"
test_password = test_secondary_password = "secret"
test_sasl_user = test_sasl_secondary_user = "none"
test_sasl_password = test_sasl_secondary_password = "none"
test_sasl_user_dn = test_sasl_secondary_user_dn = "cn=none,dc=example,dc=com"
test_sasl_realm = None
test_ntlm_user = "none\\none"
test_ntlm_password = "none"
test_ca_cert_file = os.environ.get("LDAP_CA", "")
test_user_cert_file = test_user_key_file = ""
test_valid_names = ["127.0.0.1", "localhost"]
test_user_password = "Rc2597pfop"


def random_id():
    return "".join(random.choice(string.ascii_lowercase) for _ in range(8))


def generate_dn(base, batch_id, name):
    return f"{test_name_attr}={batch_id}{name},{base}"


def get_connection(
        bind=None, use_ssl=None, check_names=None, lazy_connection=None, authentication=None, sasl_mechanism=None,
        sasl_credentials=None, ntlm_credentials=(None, None), get_info=None, usage=None, internal_decoder=None,
        simple_credentials=(None, None), receive_timeout=None, auto_escape=None, auto_encode=None):
    def given(value, otherwise):
        return otherwise if value is None else value

    server = ldap3.Server(
        test_server, port=test_port_ssl if use_ssl else test_port, use_ssl=bool(use_ssl),
        allowed_referral_hosts=("*", True), get_info=given(get_info, test_get_info), mode=test_server_mode)
    authentication = given(authentication, test_authentication)
    who = {}
    if authentication == ldap3.SASL:
        who = {"sasl_mechanism": sasl_mechanism, "sasl_credentials": sasl_credentials}
    elif authentication == ldap3.NTLM:
        who = {"user": ntlm_credentials[0], "password": ntlm_credentials[1]}
    elif authentication == ldap3.SIMPLE:
        user, password = simple_credentials
        who = {"user": user or test_user, "password": password or test_password}
    return ldap3.Connection(
        server, auto_bind=given(bind, True), version=3, client_strategy=test_strategy, authentication=authentication,
        lazy=given(lazy_connection, test_lazy_connection), pool_name="pool", pool_size=5,
        check_names=given(check_names, test_check_names), collect_usage=given(usage, True),
        fast_decoder=given(internal_decoder, test_internal_decoder), receive_timeout=receive_timeout,
        auto_escape=given(auto_escape, test_auto_escape), auto_encode=given(auto_encode, test_auto_encode), **who)


def get_operation_result(connection, done):
    return connection.result if connection.strategy.sync else connection.get_response(done)[1]


def get_response_values(done, connection):
    if connection.strategy.sync:
        return done, connection.result, connection.response, connection.request
    response, result, request = connection.get_response(done, get_request=True)
    return result["description"] in ("success", "compareTrue", "compareFalse"), result, response, request


def drop_connection(connection, dn_to_delete=None):
    for dn in dn_to_delete or []:
        get_operation_result(connection, connection.delete(dn[0]))
    connection.unbind()
    if connection.strategy.pooled:
        connection.strategy.terminate()


def as_bytes(attributes):
    def encoded(value):
        return value.encode() if isinstance(value, str) else value

    return {
        name: [encoded(one) for one in value] if isinstance(value, (list, tuple)) else encoded(value)
        for name, value in attributes.items()
    }


attributes_to_bytes = as_bytes


def get_add_user_attributes(batch_id, username, password=None, attributes=None):
    classes = ["inetOrgPerson", "posixGroup", "top"]
    return {**(attributes or {}), "objectClass": classes, "sn": username, "gidNumber": 0}


def added(connection, dn, classes, attributes, test_bytes):
    attributes = as_bytes(attributes) if test_bytes else attributes
    result = get_operation_result(connection, connection.add(dn, classes, attributes))
    if result["description"] != "success":
        raise Exception(f"unable to add {dn}: {result}")
    return dn, result


def add_user(connection, batch_id, username, password=None, attributes=None, test_bytes=False):
    attributes = get_add_user_attributes(batch_id, username, password, attributes)
    return added(connection, generate_dn(test_base, batch_id, username), None, attributes, test_bytes)


def get_add_group_attributes(members):
    return {"objectClass": "groupOfNames", "member": [member[0] for member in members]}


def add_group(connection, batch_id, groupname, members=None, test_bytes=False):
    attributes = get_add_group_attributes(members or [])
    return added(connection, generate_dn(test_base, batch_id, groupname), [], attributes, test_bytes)
