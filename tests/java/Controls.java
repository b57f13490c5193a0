import com.unboundid.ldap.sdk.AddRequest;
import com.unboundid.ldap.sdk.BindResult;
import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.SimpleBindRequest;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.IgnoreNoUserModificationRequestControl;

/** Controls of PingDirectory as the UnboundID LDAP SDK speaks them. */
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

        connection.close();
        System.out.println("all is well");
    }

    static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }
}
