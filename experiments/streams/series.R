# The series of R's package datasets that the table has, as CSV files in the folder given.
folder <- commandArgs(TRUE)[1]
series <- list(airpassengers = AirPassengers, ukgas = UKgas, lynx = lynx, nottem = nottem, lakehuron = LakeHuron,
               treering = treering, wwwusage = WWWusage, bjsales = BJsales, dax = EuStockMarkets[, "DAX"],
               beaver = beaver1$temp, sunspots_month = sunspot.month)
for (name in names(series)) {
  table <- data.frame(as.numeric(series[[name]]))
  colnames(table) <- name
  write.csv(table, file.path(folder, paste0(name, ".csv")), row.names = FALSE, quote = FALSE)
}
