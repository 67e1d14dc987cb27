// A foreign OPC UA client (node-opcua) against o3-opcua. Prints one JSON object; exit status 1 when something is wrong.
// usage: node opcua_client.mjs '{"url","policy","certificate","privateKey","uri","user","password"}'
import opcua from "node-opcua-client";
import certificateManager from "node-opcua-certificate-manager";

const settings = JSON.parse(process.argv[2]);
const { AttributeIds, ClientMonitoredItem, DataType, MessageSecurityMode, OPCUAClient, SecurityPolicy } = opcua;
const { StatusCodes, TimestampsToReturn, UserTokenType, coerceNodeId } = opcua;
const { OPCUACertificateManager } = certificateManager;

const deadline = setTimeout(() => fail(new Error("no end after 240 s")), 240_000);

function fail(error) {
  console.error(error.stack ?? String(error));
  process.exit(1);
}

const certificates = new OPCUACertificateManager({
  rootFolder: settings.pki,
  automaticallyAcceptUnknownCertificate: true,
});
await certificates.initialize();

const client = OPCUAClient.create({
  applicationUri: settings.uri,
  applicationName: "peer",
  certificateFile: settings.certificate,
  privateKeyFile: settings.privateKey,
  clientCertificateManager: certificates,
  securityMode: MessageSecurityMode.SignAndEncrypt,
  securityPolicy: SecurityPolicy[settings.policy],
  endpointMustExist: false,
  connectionStrategy: { maxRetry: 0 },
});

const report = {};
try {
  await client.connect(settings.url);
  const session = await client.createSession({
    type: UserTokenType.UserName,
    userName: settings.user,
    password: settings.password,
  });

  const browsed = await session.browse("ns=1;s=DecisionPoints/buffer-tank");
  report.children = browsed.references.map((reference) => reference.browseName.name);

  const value = await session.read({ nodeId: "ns=1;s=Tags/TK1.LT101", attributeId: AttributeIds.Value });
  report.level = { value: value.value.value, status: value.statusCode.name, source: value.sourceTimestamp };

  const types = await session.read([
    { nodeId: "ns=1;s=Tags/TK1.LT101/EngineeringUnits", attributeId: AttributeIds.Value },
    { nodeId: "ns=1;s=Tags/TK1.LT101/EURange", attributeId: AttributeIds.Value },
  ]);
  report.unit = types[0].value.value.displayName.text;
  report.range = [types[1].value.value.low, types[1].value.value.high];

  const written = await session.write({
    nodeId: "ns=1;s=Tags/TK1.LT101",
    attributeId: AttributeIds.Value,
    value: { value: { dataType: DataType.Double, value: 3.0 } },
  });
  report.written = written.name;

  const subscription = await session.createSubscription2({
    requestedPublishingInterval: 100,
    requestedLifetimeCount: 1000,
    requestedMaxKeepAliveCount: 10,
    maxNotificationsPerPublish: 100,
    publishingEnabled: true,
    priority: 1,
  });
  const item = ClientMonitoredItem.create(
    subscription,
    { nodeId: "ns=1;s=Tags/TK1.LT101", attributeId: AttributeIds.Value },
    { samplingInterval: 100, discardOldest: true, queueSize: 10 },
    TimestampsToReturn.Both,
  );
  const changed = await new Promise((resolve) => item.once("changed", resolve));
  report.changed = changed.value.value;
  await subscription.terminate();

  const called = await session.call({
    objectId: coerceNodeId("ns=1;s=DecisionPoints/buffer-tank"),
    methodId: coerceNodeId("ns=1;s=DecisionPoints/buffer-tank/RequestDecision"),
    inputArguments: [
      { dataType: DataType.String, value: "" },
      { dataType: DataType.Double, value: 500 },
      { dataType: DataType.String, value: "P1" },
    ],
  });
  report.call = called.statusCode.name;
  if (called.statusCode.equals(StatusCodes.Good)) {
    report.outputs = called.outputArguments.map((argument) => argument.value);
  }
  await session.close();
  await client.disconnect();
  await certificates.dispose();
} catch (error) {
  fail(error);
}
clearTimeout(deadline);
console.log(JSON.stringify(report));
process.exit(0);
