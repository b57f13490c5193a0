import com.unboundid.asn1.ASN1Element;
import com.unboundid.asn1.ASN1Integer;
import com.unboundid.asn1.ASN1OctetString;
import com.unboundid.asn1.ASN1Sequence;
import com.unboundid.ldap.sdk.AddRequest;
import com.unboundid.ldap.sdk.AsyncRequestID;
import com.unboundid.ldap.sdk.AsyncSearchResultListener;
import com.unboundid.ldap.sdk.BindResult;
import com.unboundid.ldap.sdk.ExtendedRequest;
import com.unboundid.ldap.sdk.ExtendedResult;
import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.Modification;
import com.unboundid.ldap.sdk.ModificationType;
import com.unboundid.ldap.sdk.ModifyRequest;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.SearchRequest;
import com.unboundid.ldap.sdk.SearchResult;
import com.unboundid.ldap.sdk.SearchResultEntry;
import com.unboundid.ldap.sdk.SearchResultReference;
import com.unboundid.ldap.sdk.SearchScope;
import com.unboundid.ldap.sdk.SimpleBindRequest;
import com.unboundid.ldap.sdk.controls.PersistentSearchChangeType;
import com.unboundid.ldap.sdk.controls.PersistentSearchRequestControl;
import com.unboundid.ldap.sdk.extensions.CancelExtendedRequest;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.IgnoreNoUserModificationRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountType;
import com.unboundid.ldap.sdk.unboundidds.controls.PasswordValidationDetailsRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.PasswordValidationDetailsResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.PasswordValidationDetailsResponseType;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Cancel, Refresh, and controls of PingDirectory, as the UnboundID LDAP SDK speaks them. */
public class Controls {
    public static void main(String[] args) throws Exception {
        String host = args[0], admin = args[2], password = args[3], suffix = args[4];
        LDAPConnection connection = new LDAPConnection(host, Integer.parseInt(args[1]));

        BindResult bound = connection.bind(new SimpleBindRequest(
            admin, password, new GetUserResourceLimitsRequestControl(true)));
        GetUserResourceLimitsResponseControl limits = GetUserResourceLimitsResponseControl.get(bound);
        check(limits != null, "the limits are told");
        check(limits.getSizeLimit() == 0 && limits.getTimeLimitSeconds() == 0, "the administrator has none");
        check(limits.getIdleTimeLimitSeconds() == 3600, "idle connections are closed after an hour");
        check(limits.getLookthroughLimit() == 0, "all candidates are looked at");

        String uuid = "597ae2f6-16a6-1027-98f4-d28b5365dc14";
        AddRequest add = new AddRequest(
            "dn: cn=kept," + suffix, "objectClass: device", "cn: kept", "entryUUID: " + uuid);
        try {
            connection.add(add);
            check(false, "the identifier is the server's to give");
        } catch (LDAPException refused) {
            check(refused.getResultCode() == ResultCode.CONSTRAINT_VIOLATION, refused.toString());
        }
        add.addControl(new IgnoreNoUserModificationRequestControl());
        connection.add(add);
        String found = connection.getEntry("cn=kept," + suffix, "entryUUID").getAttributeValue("entryUUID");
        check(uuid.equals(found), "the identifier is kept");

        Ends ends = new Ends();
        SearchRequest search = new SearchRequest(ends, suffix, SearchScope.SUB, "(objectClass=*)");
        search.addControl(new PersistentSearchRequestControl(
            PersistentSearchChangeType.allChangeTypes(), true, true));
        AsyncRequestID persistent = connection.asyncSearch(search);
        ResultCode canceled = connection
            .processExtendedOperation(new CancelExtendedRequest(persistent)).getResultCode();
        check(canceled == ResultCode.CANCELED || canceled == ResultCode.SUCCESS, canceled.toString());
        check(ends.code.take() == ResultCode.CANCELED, "the search ends as canceled");
        SearchRequest count = new SearchRequest(suffix, SearchScope.ONE, "(objectClass=*)");
        count.addControl(new MatchingEntryCountRequestControl(true, 100, false, false, true));
        MatchingEntryCountResponseControl counted =
            MatchingEntryCountResponseControl.get(connection.search(count));
        check(counted.getCountType() == MatchingEntryCountType.EXAMINED_COUNT, counted.toString());
        check(counted.getCountValue() == 5 && counted.searchIndexed(), counted.toString());
        check(counted.getDebugInfo().get(0).startsWith("plan: "), counted.toString());
        SearchRequest unindexed = new SearchRequest(suffix, SearchScope.SUB, "(sn=*)");
        unindexed.addControl(new MatchingEntryCountRequestControl());
        counted = MatchingEntryCountResponseControl.get(connection.search(unindexed));
        check(counted.getCountType() == MatchingEntryCountType.UNKNOWN, counted.toString());
        check(!counted.searchIndexed(), counted.toString());

        validatePasswords(host, Integer.parseInt(args[1]), connection, suffix);
        refresh(connection, suffix);
        connection.close();
        System.out.println("all is well");
    }

    /** The answer to a change of a password says what the policy asks of it. */
    static void validatePasswords(String host, int port, LDAPConnection admin, String suffix) throws Exception {
        String ann = "cn=Ann," + suffix;
        admin.add(
            "dn: cn=policy," + suffix, "objectClass: device", "objectClass: pwdPolicy", "cn: policy",
            "pwdAttribute: userPassword", "pwdCheckQuality: 2", "pwdMinLength: 8", "pwdMaxAge: 1000");
        admin.add(
            "dn: olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config", "objectClass: olcPPolicyConfig",
            "olcOverlay: ppolicy", "olcPPolicyDefault: cn=policy," + suffix);
        admin.modify(ann, new Modification(ModificationType.REPLACE, "userPassword", "first password"));
        LDAPConnection own = new LDAPConnection(host, port, ann, "first password");
        try {
            own.modify(change(ann, "short"));
            check(false, "the password is too short");
        } catch (LDAPException refused) {
            PasswordValidationDetailsResponseControl details =
                PasswordValidationDetailsResponseControl.get(refused.toLDAPResult());
            check(
                details.getResponseType() == PasswordValidationDetailsResponseType.VALIDATION_DETAILS,
                details.toString());
            check(details.getValidationResults().size() == 1, details.toString());
            check(!details.getValidationResults().get(0).requirementSatisfied(), details.toString());
            String least = details.getValidationResults().get(0).getPasswordRequirement()
                .getClientSideValidationProperties().get("min-password-length");
            check("8".equals(least), details.toString());
        }
        PasswordValidationDetailsResponseControl details =
            PasswordValidationDetailsResponseControl.get(own.modify(change(ann, "second password")));
        check(details.getValidationResults().get(0).requirementSatisfied(), details.toString());
        check(details.getSecondsUntilExpiration() == 1000, details.toString());
        check(!details.missingCurrentPassword() && !details.mustChangePassword(), details.toString());
        own.close();
    }

    static ModifyRequest change(String dn, String password) {
        ModifyRequest change = new ModifyRequest(
            dn,
            new Modification(ModificationType.DELETE, "userPassword", "first password"),
            new Modification(ModificationType.ADD, "userPassword", password));
        change.addControl(new PasswordValidationDetailsRequestControl());
        return change;
    }

    /** A dynamic entry lives on for as long as it is refreshed for (RFC 2589 section 4). */
    static void refresh(LDAPConnection connection, String suffix) throws Exception {
        String dn = "cn=meeting," + suffix;
        connection.add("dn: " + dn, "objectClass: device", "objectClass: dynamicObject", "cn: meeting");
        ExtendedResult refreshed = connection.processExtendedOperation(refreshRequest(dn, 900));
        check(refreshed.getResultCode() == ResultCode.SUCCESS, refreshed.toString());
        ASN1Element[] answer = ASN1Sequence.decodeAsSequence(refreshed.getValue().getValue()).elements();
        check(answer.length == 1 && answer[0].getType() == (byte) 0x81, refreshed.toString());
        check(ASN1Integer.decodeAsInteger(answer[0]).intValue() == 900, refreshed.toString());
        int ttl = connection.getEntry(dn, "entryTtl").getAttributeValueAsInteger("entryTtl");
        check(ttl > 0 && ttl <= 900, "entryTtl: " + ttl);
        ResultCode unknown = connection
            .processExtendedOperation(refreshRequest("cn=nothing," + suffix, 900)).getResultCode();
        check(unknown == ResultCode.NO_SUCH_OBJECT, unknown.toString());
        ResultCode lasting = connection
            .processExtendedOperation(refreshRequest("cn=Ann," + suffix, 900)).getResultCode();
        check(lasting == ResultCode.OBJECT_CLASS_VIOLATION, lasting.toString());
    }

    static ExtendedRequest refreshRequest(String dn, int seconds) {
        ASN1Sequence value = new ASN1Sequence(
            new ASN1OctetString((byte) 0x80, dn), new ASN1Integer((byte) 0x81, seconds));
        return new ExtendedRequest("1.3.6.1.4.1.1466.101.119.1", new ASN1OctetString(value.encode()));
    }

    /** Keeps how a search has ended. */
    static class Ends implements AsyncSearchResultListener {
        final BlockingQueue<ResultCode> code = new LinkedBlockingQueue<>();

        public void searchEntryReturned(SearchResultEntry entry) {}

        public void searchReferenceReturned(SearchResultReference reference) {}

        public void searchResultReceived(AsyncRequestID id, SearchResult result) {
            code.add(result.getResultCode());
        }
    }

    static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }
}
