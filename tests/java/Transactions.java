import com.unboundid.asn1.ASN1OctetString;
import com.unboundid.ldap.sdk.AddRequest;
import com.unboundid.ldap.sdk.Control;
import com.unboundid.ldap.sdk.DeleteRequest;
import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.Modification;
import com.unboundid.ldap.sdk.ModificationType;
import com.unboundid.ldap.sdk.ModifyDNRequest;
import com.unboundid.ldap.sdk.ModifyRequest;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.RootDSE;
import com.unboundid.ldap.sdk.controls.AssertionRequestControl;
import com.unboundid.ldap.sdk.controls.PostReadRequestControl;
import com.unboundid.ldap.sdk.controls.PostReadResponseControl;
import com.unboundid.ldap.sdk.controls.PreReadRequestControl;
import com.unboundid.ldap.sdk.controls.TransactionSpecificationRequestControl;
import com.unboundid.ldap.sdk.extensions.EndTransactionExtendedRequest;
import com.unboundid.ldap.sdk.extensions.EndTransactionExtendedResult;
import com.unboundid.ldap.sdk.extensions.StartTransactionExtendedRequest;
import com.unboundid.ldap.sdk.extensions.StartTransactionExtendedResult;

/** Transactions (RFC 5805) as the UnboundID LDAP SDK speaks them, with another connection looking on. */
public class Transactions {
    static LDAPConnection connection, other;

    public static void main(String[] args) throws Exception {
        String host = args[0], admin = args[2], password = args[3], suffix = args[4];
        int port = Integer.parseInt(args[1]);
        connection = new LDAPConnection(host, port, admin, password);
        other = new LDAPConnection(host, port, admin, password);

        RootDSE root = connection.getRootDSE();
        check(root.supportsControl("1.3.6.1.1.21.2"), "the control is advertised");
        check(root.supportsExtendedOperation("1.3.6.1.1.21.1"), "the start is advertised");
        check(root.supportsExtendedOperation("1.3.6.1.1.21.3"), "the end is advertised");

        // Committed: nothing before the end, all after it, with the controls of the updates.
        ASN1OctetString id = start();
        connection.add(new AddRequest("cn=one," + suffix, attributes("one"), controls(id)));
        ModifyRequest modify = new ModifyRequest("cn=one," + suffix,
            new Modification(ModificationType.REPLACE, "description", "changed"));
        modify.setControls(new Control[] {
            new TransactionSpecificationRequestControl(id),
            new PreReadRequestControl(true, "description"),
            new PostReadRequestControl(true, "description", "entryUUID"),
            new AssertionRequestControl("(cn=one)"),
        });
        int modifyId = connection.modify(modify).getMessageID();
        connection.modifyDN(new ModifyDNRequest("cn=one," + suffix, "cn=two", true, null, controls(id)));
        check(other.getEntry("cn=one," + suffix) == null && other.getEntry("cn=two," + suffix) == null, "too early");
        EndTransactionExtendedResult ended = end(id, true);
        check(ended.getResultCode() == ResultCode.SUCCESS && ended.getFailedOpMessageID() < 0, ended);
        check(other.getEntry("cn=two," + suffix) != null && other.getEntry("cn=one," + suffix) == null, "too late");
        PostReadResponseControl read = null;
        for (Control control : ended.getOperationResponseControls(modifyId)) {
            if (control instanceof PostReadResponseControl) {
                read = (PostReadResponseControl) control;
            }
        }
        check(read.getEntry().getAttributeValue("description").equals("changed"), read);
        check(read.getEntry().getAttributeValue("entryUUID").length() == 36, read);

        // One that cannot be: the failing update is named, nothing is done.
        id = start();
        connection.delete(new DeleteRequest("cn=two," + suffix, controls(id)));
        int failing = connection.delete(new DeleteRequest("cn=nobody," + suffix, controls(id))).getMessageID();
        ended = end(id, true);
        check(ended.getResultCode() == ResultCode.NO_SUCH_OBJECT, ended);
        check(ended.getFailedOpMessageID() == failing, ended);
        check(other.getEntry("cn=two," + suffix) != null, "half a transaction");

        // One that is given up, and one that a bind forgets.
        id = start();
        connection.delete(new DeleteRequest("cn=two," + suffix, controls(id)));
        check(end(id, false).getResultCode() == ResultCode.SUCCESS, "abort");
        id = start();
        connection.delete(new DeleteRequest("cn=two," + suffix, controls(id)));
        connection.bind(admin, password);
        check(end(id, true).getResultCode() != ResultCode.SUCCESS, "a transaction from before the bind");
        check(other.getEntry("cn=two," + suffix) != null, "an aborted transaction took place");
        try {
            connection.delete(new DeleteRequest("cn=two," + suffix, controls(id)));
            throw new AssertionError("an identifier that is void was accepted");
        } catch (LDAPException expected) {
            check(expected.getResultCode() == ResultCode.UNWILLING_TO_PERFORM, expected);
        }
        connection.close();
        other.close();
        System.out.println("all is well");
    }

    static ASN1OctetString start() throws LDAPException {
        StartTransactionExtendedResult started = (StartTransactionExtendedResult)
            connection.processExtendedOperation(new StartTransactionExtendedRequest());
        check(started.getResultCode() == ResultCode.SUCCESS, started);
        return started.getTransactionID();
    }

    static EndTransactionExtendedResult end(ASN1OctetString id, boolean commit) throws LDAPException {
        return (EndTransactionExtendedResult)
            connection.processExtendedOperation(new EndTransactionExtendedRequest(id, commit));
    }

    static Control[] controls(ASN1OctetString id) {
        return new Control[] {new TransactionSpecificationRequestControl(id)};
    }

    static com.unboundid.ldap.sdk.Attribute[] attributes(String name) {
        return new com.unboundid.ldap.sdk.Attribute[] {
            new com.unboundid.ldap.sdk.Attribute("objectClass", "device"),
            new com.unboundid.ldap.sdk.Attribute("cn", name),
        };
    }

    static void check(boolean condition, Object about) {
        if (!condition) {
            throw new AssertionError(about);
        }
    }
}
